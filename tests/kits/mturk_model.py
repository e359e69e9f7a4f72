"""Requests of every operation, valid and broken, made from botocore's own description of MTurk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ServiceModel, Shape
from hypothesis import strategies as st

WRONG = {
    "string": [5, 1.5, True, [], ["x"], {}],
    "integer": ["5", 1.5, True, [], {}],
    "long": ["5", 1.5, True, [], {}],
    "boolean": ["true", 1, [], {}],
    "timestamp": ["soon", True, [], {}],
    "list": [{}, "x", 5, True],
    "structure": [[], "x", 5, True],
}
"""Values of another JSON type than the model's."""


@dataclass(frozen=True)
class Sample:
    """A request's parameters, and what the model forbids of them (empty: nothing)."""

    params: dict[str, Any]
    fault: str


@cache
def service() -> ServiceModel:
    """botocore's model of MTurk."""
    return botocore.session.Session().get_service_model("mturk")


def requests(operation: str, known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Sample]:
    """Valid and broken requests of an operation; ``known`` gives values that mean something to the server."""
    shape = service().operation_model(operation).input_shape
    assert shape is not None
    valid = _value(shape, known, "")
    either = st.one_of(_likely(shape, known), valid)
    return st.one_of(
        either.map(lambda params: Sample(params, "")), valid.flatmap(lambda p: _broken(shape, p))
    )


def _likely(shape: Shape, known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Requests that the server may well fulfil: what is required, and what it knows."""
    members = {
        name: _value(member, {}, name)
        for name, member in shape.members.items()
        if name in shape.required_members
    }
    for name in known.keys() & shape.members.keys():
        is_list = shape.members[name].type_name == "list"
        members[name] = st.lists(known[name], min_size=1, max_size=3) if is_list else known[name]
    return st.fixed_dictionaries(members)


def _value(shape: Shape, known: Mapping[str, st.SearchStrategy[Any]], name: str) -> st.SearchStrategy[Any]:
    kind = shape.type_name
    if kind == "structure":
        members = {key: _value(member, known, key) for key, member in shape.members.items()}
        must = {key: members.pop(key) for key in shape.required_members}
        return st.fixed_dictionaries(must, optional=members)
    if kind == "list":
        return st.lists(_value(shape.member, known, name), max_size=3)
    plain = _plain(shape)
    return st.one_of(known[name], known[name], plain) if name in known else plain


def _plain(shape: Shape) -> st.SearchStrategy[Any]:
    limits = shape.metadata
    if shape.type_name == "string":
        if shape.enum:
            return st.sampled_from(shape.enum)
        if "pattern" in limits:
            found = st.from_regex(limits["pattern"].removesuffix("$") + r"\Z")
            return found.filter(lambda text: len(text) <= limits.get("max", 200))
        return st.text(min_size=limits.get("min", 0), max_size=min(limits.get("max", 60), 60))
    if shape.type_name in ("integer", "long"):
        least, most = limits.get("min", -(2**31) + 1), limits.get("max", 2**31 - 1)
        small = st.integers(max(least, 0), min(most, 100))
        return st.one_of(small, st.integers(least, most))
    if shape.type_name == "boolean":
        return st.booleans()
    assert shape.type_name == "timestamp"
    return st.one_of(st.integers(0, 4_000_000_000), st.floats(-1e9, 4e9, allow_nan=False))


def _broken(shape: Shape, params: dict[str, Any]) -> st.SearchStrategy[Sample]:
    """The same parameters with one fault that the model forbids; valid ones where nothing can be broken."""
    faults = list(_faults(shape, params))
    if not faults:
        return st.just(Sample(params, ""))
    return st.sampled_from(faults).map(lambda fault: Sample(_with(params, *fault[:2]), fault[2]))


_ABSENT = object()


def _faults(shape: Shape, value: Any, path: tuple[Any, ...] = ()):
    """(path, value to put there, what is wrong with it), for all of a request's members."""
    if path:
        for wrong in WRONG[shape.type_name]:
            yield path, wrong, f"{wrong!r} at {path} is no {shape.type_name}"
    if shape.type_name == "structure":
        for name in shape.required_members:
            yield (*path, name), _ABSENT, f"{name} is missing at {path}"
        for name, member in value.items():
            yield from _faults(shape.members[name], member, (*path, name))
    elif shape.type_name == "list":
        for place, member in enumerate(value):
            yield from _faults(shape.member, member, (*path, place))
    elif getattr(shape, "enum", None):
        yield path, "Nonesuch", f"{path} is none of the enumeration"
    else:
        yield from _limits(shape, path)


def _limits(shape: Shape, path: tuple[Any, ...]):
    limits = shape.metadata
    if shape.type_name == "string":
        if limits.get("min"):
            yield path, "", f"{path} is empty"
        if "max" in limits:
            yield path, "A" * (limits["max"] + 1), f"{path} is too long"
        if "pattern" in limits:
            yield path, "a b", f"{path} does not match {limits['pattern']}"
    elif "min" in limits:
        yield path, limits["min"] - 1, f"{path} is too small"
        yield path, limits["max"] + 1, f"{path} is too large"


HOSTILE = {
    "string": [
        "'%_\\/\x1f\ufffe\U0001f600", "a\0b", "\ud800", "%" * 30_000, "A" * 60_000, "\U0001f600" * 9_000, "9" * 5_000
    ],
    "integer": [2**31 - 1, 2**31, 2**63, -(2**63) - 1, 10**4_000, float("nan")],
    "timestamp": [5e-324, -62_135_596_801, 253_370_764_799.999, 253_402_300_800, 10**4_000, -(10**4_000), float("inf")],
    "boolean": [10**4_000],
    "list": [[None], [{"\ud800": []}], ["\0"] * 3, ["A" * 60_000], [10**4_000]],
    "structure": [{"\0": "\ud800"}],
}  # fmt: skip
"""Values of a JSON type that a database, a clock or a message might choke on; any answer but a fault is right."""
HOSTILE["long"] = HOSTILE["integer"]


def hostile_requests(operation: str, known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """An operation's requests that are whole but for one hostile value, at every place that the model has.

    Args:
        known: for the names of members, values that mean something to the server.
    """
    shape = service().operation_model(operation).input_shape
    assert shape is not None
    whole = _filled(shape, known)
    # What excludes something else is left out, so that the others' values are reached.
    for path in _places(shape, ()):
        kept = {
            name: value for name, value in whole.items() if name in shape.required_members or name in known
        }
        for value in HOSTILE[_at(shape, path).type_name]:
            yield _put(kept, shape, path, value, known)


def _filled(shape: Shape, known: Mapping[str, Any]) -> Any:
    """A value with all members, each one that the server may well take."""
    if shape.type_name == "structure":
        return {name: known.get(name, _filled(member, known)) for name, member in shape.members.items()}
    if shape.type_name == "list":
        return [_filled(shape.member, known)]
    if getattr(shape, "enum", None):
        return shape.enum[0]
    plain = {"string": "1", "integer": 1, "long": 1, "boolean": True, "timestamp": 4e9}
    return plain[shape.type_name]


def _places(shape: Shape, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            yield from _places(member, (*path, name))
    elif shape.type_name == "list":
        yield from _places(shape.member, (*path, "[]"))


def _at(shape: Shape, path: tuple[str, ...]) -> Shape:
    for step in path:
        shape = shape.member if step == "[]" else shape.members[step]
    return shape


def _put(value: Any, shape: Shape, path: tuple[str, ...], new: Any, known: Mapping[str, Any]) -> Any:
    """A copy with ``new`` at this place, and around it what the model wants there."""
    if not path:
        return new
    head, *rest = path
    if head == "[]":
        [old, *_] = value or [_filled(shape.member, known)]
        return [_put(old, shape.member, tuple(rest), new, known)]
    member = shape.members[head]
    old = value.get(head, _filled(member, known))
    return {**value, head: _put(old, member, tuple(rest), new, known)}


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value, or none, at this path."""
    if not path:
        return new
    head, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is _ABSENT and not rest:
        copy.pop(head, None)
    else:
        copy[head] = _with(copy[head], tuple(rest), new)
    return copy
