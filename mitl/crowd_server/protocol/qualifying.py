"""Whether a worker meets a HIT type's QualificationRequirements; pure.

Requesters' own qualification types are enforced. Amazon's system qualifications (locale, approval rate, number
of approved HITs, adult content, Masters) pass for everybody: this server invites its workers one by one and
keeps no record from which they could be told, and refusing everybody would only hide the HITs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

SYSTEM_TYPES = frozenset(
    {
        "000000000000000000L0",
        "00000000000000000040",
        "00000000000000000060",
        "00000000000000000071",
        "2F1QJWKUDD8XADTFD2Q0G6UTO95ALH",
        "2ARFPLSP75KLA8M8DH1HTEQVJT3SY6",
    }
)

ACTIONS = {"accept": 0, "preview": 1, "discover": 2}
GUARDS = {"Accept": 0, "PreviewAndAccept": 1, "DiscoverPreviewAndAccept": 2}

_ONE_VALUE: Mapping[str, Callable[[int, int], bool]] = {
    "EqualTo": lambda held, wanted: held == wanted,
    "NotEqualTo": lambda held, wanted: held != wanted,
    "LessThan": lambda held, wanted: held < wanted,
    "LessThanOrEqualTo": lambda held, wanted: held <= wanted,
    "GreaterThan": lambda held, wanted: held > wanted,
    "GreaterThanOrEqualTo": lambda held, wanted: held >= wanted,
}
COMPARATORS = frozenset(_ONE_VALUE) | {"Exists", "DoesNotExist", "In", "NotIn"}


def may(action: str, requirements: str, held: Mapping[str, int | None]) -> bool:
    """Whether a worker who holds these qualifications may ``accept``, ``preview`` or ``discover``.

    A requirement that guards preview guards acceptance too, and one that guards discovery guards all three.
    """
    return all(
        _meets(requirement, held)
        for requirement in json.loads(requirements)
        if _guard(requirement) >= ACTIONS[action]
    )


def _guard(requirement: Mapping[str, Any]) -> int:
    if requirement.get("RequiredToPreview"):
        return GUARDS["PreviewAndAccept"]
    return GUARDS[requirement.get("ActionsGuarded", "Accept")]


def _meets(requirement: Mapping[str, Any], held: Mapping[str, int | None]) -> bool:
    type_id = requirement["QualificationTypeId"]
    comparator = requirement["Comparator"]
    if type_id in SYSTEM_TYPES:
        return True
    if comparator == "Exists":
        return type_id in held
    if comparator == "DoesNotExist":
        return type_id not in held
    value = held.get(type_id)
    if value is None:
        return False
    integers = requirement.get("IntegerValues", [])
    if comparator == "In":
        return value in integers
    if comparator == "NotIn":
        return value not in integers
    return _ONE_VALUE[comparator](value, integers[0])
