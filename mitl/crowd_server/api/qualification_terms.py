"""How a qualification type is asked for: its test, its key, its delays, as CreateQualificationType reads them."""

from __future__ import annotations

from dataclasses import replace

from mitl.crowd_server.api.params import Params
from mitl.crowd_server.errors import invalid, missing
from mitl.crowd_server.forms import answer_key, question_form, turk_xml
from mitl.crowd_server.store.qualifications import Terms

INT32 = 2**31 - 1
_GRANTED = 1
"""The value of a qualification granted by itself, unless another is given."""


def created(params: Params) -> Terms:
    """The terms of a new type.

    Raises:
        TurkError: parameters that exclude each other, that miss each other, or XML that cannot be used.
    """
    terms = _tested(params)
    if params.flag("AutoGranted"):
        if terms.test is not None:
            raise invalid("AutoGranted", "it cannot be true where a Test is given")
        terms = replace(terms, auto_granted_value=_value(params, _GRANTED))
    else:
        _value(params, _GRANTED)
    return replace(terms, retry_delay_s=_delay(params))


def updated(params: Params, terms: Terms) -> Terms:
    """The terms of a type after UpdateQualificationType; what is not given stays as it is.

    Raises:
        TurkError: as ``created``; a test cannot be taken away, and a type with one cannot grant itself.
    """
    tested = _tested(params)
    if tested.test is not None:
        terms = replace(
            terms,
            test=tested.test,
            answer_key=tested.answer_key,
            test_duration_s=tested.test_duration_s,
        )
    elif terms.test is not None and params.has("TestDurationInSeconds"):
        terms = replace(terms, test_duration_s=_duration(params))
    before = terms.auto_granted_value
    granted = params.flag("AutoGranted", before is not None)
    if granted and terms.test is not None:
        raise invalid("AutoGranted", "it cannot be true for a type that has a Test")
    value = _value(params, _GRANTED if before is None else before)
    terms = replace(terms, auto_granted_value=value if granted else None)
    if params.has("RetryDelayInSeconds"):
        terms = replace(terms, retry_delay_s=_delay(params))
    return terms


def _tested(params: Params) -> Terms:
    """The test with its key and its time; as on MTurk, a time counts only where there is a test."""
    test = params.text("Test")
    key = params.text("AnswerKey")
    if not test:
        if params.has("AnswerKey"):
            raise missing("Test (which AnswerKey belongs to)")
        params.integer("TestDurationInSeconds", -INT32, INT32, 0)
        return Terms()
    if not params.has("TestDurationInSeconds"):
        raise missing("TestDurationInSeconds (which a Test needs)")
    with turk_xml.reading("Test"):
        form = question_form.parse(test)
    if key:
        with turk_xml.reading("AnswerKey"):
            answer_key.parse(key, form)
    return Terms(
        test=test,
        answer_key=key or None,
        test_duration_s=_duration(params),
    )


def _duration(params: Params) -> int:
    return params.integer("TestDurationInSeconds", 1, INT32)


def _delay(params: Params) -> int | None:
    if not params.has("RetryDelayInSeconds"):
        return None
    return params.integer("RetryDelayInSeconds", 0, INT32)


def _value(params: Params, default: int) -> int:
    """AutoGrantedValue, which counts only where AutoGranted is true but must be a number in any case."""
    return params.integer("AutoGrantedValue", -INT32, INT32, default)
