"""QualificationRequirements: who may discover, preview and accept."""

from __future__ import annotations

import json

import pytest

from mitl.crowd_server.protocol.qualifying import SYSTEM_TYPES, may

HELD = {"3Q": 5, "3NOVALUE": None}


def one(comparator, values=None, guarded=None, type_id="3Q"):
    """A list with one requirement, as kept."""
    requirement = {"QualificationTypeId": type_id, "Comparator": comparator}
    if values is not None:
        requirement["IntegerValues"] = values
    if guarded is not None:
        requirement["ActionsGuarded"] = guarded
    return json.dumps([requirement])


@pytest.mark.parametrize(
    ("comparator", "values", "passes"),
    [
        ("Exists", None, True),
        ("DoesNotExist", None, False),
        ("EqualTo", [5], True),
        ("EqualTo", [4], False),
        ("NotEqualTo", [4], True),
        ("NotEqualTo", [5], False),
        ("LessThan", [6], True),
        ("LessThan", [5], False),
        ("LessThanOrEqualTo", [5], True),
        ("LessThanOrEqualTo", [4], False),
        ("GreaterThan", [4], True),
        ("GreaterThan", [5], False),
        ("GreaterThanOrEqualTo", [5], True),
        ("GreaterThanOrEqualTo", [6], False),
        ("In", [1, 5], True),
        ("In", [1, 2], False),
        ("NotIn", [1, 2], True),
        ("NotIn", [1, 5], False),
    ],
)
def test_comparators_compare_the_held_value(comparator, values, passes):
    """A worker holds 5."""
    assert may("accept", one(comparator, values), HELD) is passes


@pytest.mark.parametrize("comparator", ["EqualTo", "NotEqualTo", "LessThan", "NotIn"])
def test_without_a_value_nothing_compares(comparator):
    """Neither a qualification that is not held nor one without a value meets a comparison."""
    assert not may("accept", one(comparator, [1]), {})
    assert not may("accept", one(comparator, [1], type_id="3NOVALUE"), HELD)


@pytest.mark.parametrize(
    ("guarded", "actions"),
    [
        (None, {"accept"}),
        ("Accept", {"accept"}),
        ("PreviewAndAccept", {"accept", "preview"}),
        ("DiscoverPreviewAndAccept", {"accept", "preview", "discover"}),
    ],
)
def test_what_is_guarded_widens(guarded, actions):
    """Guarding discovery guards preview and acceptance with it; by default only acceptance is guarded."""
    refused = {
        action
        for action in ("accept", "preview", "discover")
        if not may(action, one("DoesNotExist", guarded=guarded), HELD)
    }

    assert refused == actions


@pytest.mark.parametrize("type_id", sorted(SYSTEM_TYPES))
def test_system_qualifications_pass(type_id):
    """This server has no record of Amazon's own qualifications and refuses nobody by them."""
    assert may("accept", one("GreaterThan", [95], type_id=type_id), {})
