"""The other shape of an answer: a crowd-form gives one field, ``taskAnswers``, a JSON array of one object."""

from __future__ import annotations

import json
from collections.abc import Iterator


class CrowdFormError(ValueError):
    """The text of ``taskAnswers`` is not a JSON array with one object."""


def crowd_form_fields(text: str) -> Iterator[tuple[str, str | None]]:
    """The (name, value) fields within ``taskAnswers``, in their order, repeated names included.

    A choice, ``{"value": true, ...}``, gives a field for each value that is true. The value is None where it
    is neither text, a number, a list of texts nor a choice.

    Raises:
        CrowdFormError: this is not a JSON array with one object.
    """
    try:
        document = json.loads(text, object_pairs_hook=_Members)
    except (ValueError, RecursionError) as error:
        raise CrowdFormError(f"not JSON: {str(error)[:120]}") from error
    objects = document if isinstance(document, list) and not isinstance(document, _Members) else [document]
    if len(objects) != 1 or not isinstance(objects[0], _Members):
        raise CrowdFormError("not a JSON array with one object")
    for name, value in objects[0]:
        values = _values(value)
        if values is None:
            yield name, None
        else:
            yield from ((name, item) for item in values)


class _Members(list[tuple[str, object]]):
    """The members of a JSON object as pairs, so that a repeated key is seen."""


def _values(value: object) -> list[str] | None:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, _Members):
        if all(isinstance(chosen, bool) for _, chosen in value):
            return [name for name, chosen in value if chosen]
        return None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return list(value)
    return None
