"""Operations on qualification types: how one is asked for, and what HITs require of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from mitl.crowd_server.api import notifications
from mitl.crowd_server.api.registry import ApiCall, Params, Reply, operation
from mitl.crowd_server.api.shapes import qualification_type
from mitl.crowd_server.protocol import answers, qualifying, question_form, turk_xml
from mitl.crowd_server.protocol.errors import invalid, missing, present, turk
from mitl.crowd_server.store import qualifications, workers
from mitl.crowd_server.store.qualifications import QualificationTerms, QualificationTypeRow

INT32 = 2**31 - 1
_GRANTED = 1
"""The value of a qualification granted by itself, unless another is given."""


def read_terms(params: Params, kept: QualificationTerms | None = None) -> QualificationTerms:
    """The terms of a new type, or those of one that is changed, where what is not given stays as it is.

    Raises:
        TurkError: parameters that exclude each other, that miss each other, or XML that cannot be used; a test
            cannot be taken away, and a type with one cannot grant itself.
    """
    tested, terms = _tested(params), kept or QualificationTerms()
    if tested.test is not None:
        changes = (tested.test, tested.answer_key, tested.test_duration_s)
        terms = QualificationTerms(*changes, terms.retry_delay_s, terms.auto_granted_value)
    elif terms.test is not None and params.has("TestDurationInSeconds"):
        terms = replace(terms, test_duration_s=params.integer("TestDurationInSeconds", 1, INT32))
    before = terms.auto_granted_value
    granted = params.flag("AutoGranted", before is not None)
    if granted and terms.test is not None:
        where = "where a Test is given" if kept is None else "for a type that has a Test"
        raise invalid("AutoGranted", f"it cannot be true {where}")
    # It counts only where AutoGranted is true, but must be a number in any case.
    value = params.integer("AutoGrantedValue", -INT32, INT32, _GRANTED if before is None else before)
    terms = replace(terms, auto_granted_value=value if granted else None)
    if params.has("RetryDelayInSeconds"):
        terms = replace(terms, retry_delay_s=params.integer("RetryDelayInSeconds", 0, INT32))
    return terms


def _tested(params: Params) -> QualificationTerms:
    """The test with its key and its time; as on MTurk, a time counts only where there is a test."""
    test = params.text("Test")
    key = params.text("AnswerKey")
    if not test:
        if params.has("AnswerKey"):
            raise missing("Test (which AnswerKey belongs to)")
        params.integer("TestDurationInSeconds", -INT32, INT32, 0)
        return QualificationTerms()
    if not params.has("TestDurationInSeconds"):
        raise missing("TestDurationInSeconds (which a Test needs)")
    with turk_xml.reading("Test"):
        form = question_form.parse(test)
    if key:
        with turk_xml.reading("AnswerKey"):
            answers.read_key(key, form)
    return QualificationTerms(test, key or None, params.integer("TestDurationInSeconds", 1, INT32))


LOCALE = "00000000000000000071"
MAX_REQUIREMENTS = 10
MAX_INTEGERS = 15
MAX_LOCALES = 30
_WITHOUT_VALUE = ("Exists", "DoesNotExist")
_OF_A_SET = ("In", "NotIn")
_OF_LOCALES = ("EqualTo", "NotEqualTo", "In", "NotIn", *_WITHOUT_VALUE)


def read_requirements(call: ApiCall) -> str:
    """The QualificationRequirements of a request, as the JSON that a HIT type keeps."""
    structures = call.params.structures("QualificationRequirements", longest=MAX_REQUIREMENTS)
    return json.dumps([_requirement(call, structure) for structure in structures], sort_keys=True)


def mention(type_id: str) -> str:
    """What the JSON of every requirement on this qualification type holds, and no other."""
    return json.dumps({"QualificationTypeId": type_id})[1:-1]


def _requirement(call: ApiCall, own: Params) -> Reply:
    type_id = own.entity("QualificationTypeId")
    comparator = own.choice("Comparator", tuple(sorted(qualifying.COMPARATORS)))
    if type_id not in qualifying.SYSTEM_TYPES:
        known_type(call, type_id)
    kept: dict[str, Any] = {"QualificationTypeId": type_id, "Comparator": comparator}
    integers = own.integers("IntegerValues", longest=MAX_INTEGERS)
    locales = [_locale(value) for value in own.structures("LocaleValues", longest=MAX_LOCALES)]
    if type_id == LOCALE:
        if comparator not in _OF_LOCALES:
            raise invalid("Comparator", f"for a locale it must be one of {', '.join(_OF_LOCALES)}")
        _refuse("IntegerValues", integers, "a locale has none")
        _check_count("LocaleValues", locales, comparator)
        kept |= {"LocaleValues": locales} if locales else {}
    else:
        _refuse("LocaleValues", locales, "only the locale qualification has them")
        _check_count("IntegerValues", integers, comparator)
        kept |= {"IntegerValues": integers} if integers else {}
    return kept | _guard(own)


def _check_count(name: str, values: list[Any], comparator: str) -> None:
    if comparator in _WITHOUT_VALUE:
        _refuse(name, values, f"the comparator {comparator} takes none")
    elif not values:
        raise missing(name)
    elif len(values) > 1 and comparator not in _OF_A_SET:
        raise invalid(name, f"the comparator {comparator} takes one value; In and NotIn take several")


def _refuse(name: str, values: list[Any], why: str) -> None:
    if values:
        raise invalid(name, why)


def _locale(own: Params) -> dict[str, str]:
    locale = {"Country": own.text("Country", shortest=2, longest=2, required=True)}
    if own.has("Subdivision"):
        locale["Subdivision"] = own.text("Subdivision", shortest=2, longest=2)
    return locale


def _guard(own: Params) -> Reply:
    """Which actions the requirement guards, by the new name or by the old one."""
    if own.has("ActionsGuarded") and own.has("RequiredToPreview"):
        raise invalid("ActionsGuarded", "give either ActionsGuarded or RequiredToPreview")
    if own.has("ActionsGuarded"):
        return {"ActionsGuarded": own.choice("ActionsGuarded", tuple(qualifying.GUARDS))}
    if own.has("RequiredToPreview"):
        return {"RequiredToPreview": own.flag("RequiredToPreview")}
    return {}


MAX_DESCRIPTION = 2000
_STATUSES = ("Active", "Inactive")
_DELETED = "The qualification does not exist any more."


@operation("CreateQualificationType", writes=True)
def create_qualification_type(call: ApiCall) -> Reply:
    """Create a type that workers get by a test, automatically or on your decision; its name must be unique."""
    params = call.params
    row = qualifications.add_type(
        call,
        name=params.text("Name", longest=200, required=True),
        description=params.text("Description", longest=MAX_DESCRIPTION, required=True),
        keywords=params.text("Keywords", longest=1000),
        active=params.choice("QualificationTypeStatus", _STATUSES) == "Active",
        terms=read_terms(params),
    )
    if row is None:
        raise turk(
            "QualificationTypeAlreadyExists",
            "You have already created a QualificationType with this name. A QualificationType's name must be "
            "unique among those of one requester.",
        )
    return {"QualificationType": qualification_type(row)}


@operation("UpdateQualificationType", writes=True)
def update_qualification_type(call: ApiCall) -> Reply:
    """Change a type, except its name and keywords; a new test replaces the old test and its answer key."""
    params = call.params
    row = find_type(call)
    changed = replace(
        row,
        description=params.text("Description", longest=MAX_DESCRIPTION) or row.description,
        active=params.choice("QualificationTypeStatus", _STATUSES, _STATUSES[not row.active]) == "Active",
        terms=read_terms(params, row.terms),
    )
    qualifications.update_type(call, changed)
    return {"QualificationType": qualification_type(changed)}


@operation("DeleteQualificationType", writes=True)
def delete_qualification_type(call: ApiCall) -> None:
    """Delete a type and reject the requests for it; workers who hold it keep it for HITs that require it."""
    row = find_type(call)
    letter = notifications.refused(row.name, _DELETED)
    for worker_id in qualifications.reject_undecided(call, row.id, _DELETED):
        workers.tell(call, worker_id, *letter)
    qualifications.delete_type(call, row)


@operation("GetQualificationType", writes=False)
def get_qualification_type(call: ApiCall) -> Reply:
    """Return a type with its test and answer key."""
    return {"QualificationType": qualification_type(find_type(call))}


@operation("ListQualificationTypes", writes=False)
def list_qualification_types(call: ApiCall) -> Reply:
    """List the types whose name, description or keywords contain the query.

    All types of an environment belong to its one requester, so MustBeOwnedByCaller leaves nothing out.
    """
    params = call.params
    if not params.has("MustBeRequestable"):
        raise missing("MustBeRequestable")
    params.flag("MustBeOwnedByCaller")
    requestable, query = params.flag("MustBeRequestable"), params.text("Query")
    rows_of = partial(qualifications.list_types, call, query=query, requestable=requestable)
    return call.listed("QualificationTypes", rows_of, qualification_type)


def find_type(call: ApiCall) -> QualificationTypeRow:
    """The type that a call names; TurkError QualificationTypeDoesNotExist where there is none."""
    return known_type(call, call.params.entity("QualificationTypeId"))


def known_type(call: ApiCall, mturk_id: str) -> QualificationTypeRow:
    """The requester's own type of this id; TurkError QualificationTypeDoesNotExist where there is none."""
    row = qualifications.find_type(call, mturk_id)
    return present(row, "QualificationType", "QualificationTypeDoesNotExist", mturk_id)
