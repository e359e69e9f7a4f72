"""QualificationRequirements: checked when a HIT type is made, kept as JSON."""

from __future__ import annotations

import json
from typing import Any

from mitl.crowd_server.api.params import Params
from mitl.crowd_server.api.registry import Call
from mitl.crowd_server.errors import absent, invalid, missing
from mitl.crowd_server.qualifications import qualifying
from mitl.crowd_server.store import qualifications

LOCALE = "00000000000000000071"
MAX_REQUIREMENTS = 10
MAX_INTEGERS = 15
MAX_LOCALES = 30
ACTIONS = ("Accept", "PreviewAndAccept", "DiscoverPreviewAndAccept")
_WITHOUT_VALUE = ("Exists", "DoesNotExist")
_OF_A_SET = ("In", "NotIn")
_OF_LOCALES = ("EqualTo", "NotEqualTo", "In", "NotIn", *_WITHOUT_VALUE)


def read(call: Call) -> str:
    """The QualificationRequirements of a request, as the JSON that a HIT type keeps."""
    given = call.params.structures("QualificationRequirements", longest=MAX_REQUIREMENTS)
    return json.dumps([_requirement(call, own) for own in given], sort_keys=True)


def mention(type_id: str) -> str:
    """What the JSON of every requirement on this qualification type holds, and no other."""
    return json.dumps({"QualificationTypeId": type_id})[1:-1]


def _requirement(call: Call, own: Params) -> dict[str, Any]:
    type_id = own.entity("QualificationTypeId")
    comparator = own.choice("Comparator", tuple(sorted(qualifying.COMPARATORS)))
    is_system = type_id in qualifying.SYSTEM_TYPES
    if not is_system and qualifications.find_type(call.connection, call.environment, type_id) is None:
        raise absent("QualificationType", "QualificationTypeDoesNotExist", type_id)
    kept: dict[str, Any] = {"QualificationTypeId": type_id, "Comparator": comparator}
    integers = own.integers("IntegerValues", longest=MAX_INTEGERS)
    locales = [_locale(one) for one in own.structures("LocaleValues", longest=MAX_LOCALES)]
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


def _guard(own: Params) -> dict[str, Any]:
    """Which actions the requirement guards, by the new name or by the old one."""
    if own.has("ActionsGuarded") and own.has("RequiredToPreview"):
        raise invalid("ActionsGuarded", "give either ActionsGuarded or RequiredToPreview")
    if own.has("ActionsGuarded"):
        return {"ActionsGuarded": own.choice("ActionsGuarded", ACTIONS)}
    if own.has("RequiredToPreview"):
        return {"RequiredToPreview": own.flag("RequiredToPreview")}
    return {}
