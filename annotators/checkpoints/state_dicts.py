"""Weights by flat name, out of what training scripts put around them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from annotators.checkpoints.pickles import Inert, Reference
from mitl.errors import AnnotatorError

WRAPPERS = ("model", "state_dict")
"""Keys under which training scripts keep the weights."""


def unwrapped(path: Path, layout: str, found: object) -> tuple[str, dict[str, Tensor], dict[str, object]]:
    """Take the weights out of what training scripts put around them: layout in words, tensors, other values.

    Raises:
        AnnotatorError: there are no weights, or something among them is no tensor.
    """
    words, values = [layout], dict[str, object]()
    key = next((key for key in WRAPPERS if isinstance(found, dict) and _parts(found.get(key))), None)
    if key is not None and isinstance(found, dict):
        words.append(f"dict with {key!r}")
        values = {str(name): value for name, value in found.items() if name != key}
        found = found[key]
    parts = _parts(found)
    if not parts:
        raise AnnotatorError(
            f"{str(path)!r} holds {_kind(found)}, not weights; save its state_dict() and name that file"
        )
    words.append(f"list of {_number(len(parts))} dicts" if isinstance(found, list | tuple) else "state dict")
    tensors: dict[str, Tensor] = {}
    for prefix, part in parts.items():
        named = {str(name): value for name, value in part.items() if isinstance(value, Tensor)}
        tensors.update((prefix + name, tensor) for name, tensor in bare_names(named).items())
        rest = {f"{prefix}{name}": value for name, value in part.items() if not isinstance(value, Tensor)}
        if rest and (key is not None or prefix):
            name, value = next(iter(rest.items()))
            raise AnnotatorError(
                f"{str(path)!r} holds {_kind(value)} under {name!r} among its weights; weights are tensors alone"
            )
        values.update(rest)
    if not tensors:
        held = ", ".join(repr(name) for name in list(values)[:5]) or "nothing"
        raise AnnotatorError(f"{str(path)!r} holds no weights; it holds {held}")
    return ", ".join(words), tensors, values


def _parts(value: object) -> dict[str, Mapping[object, object]]:
    """A state dict, or several of them by their prefix; empty for anything else."""
    if isinstance(value, dict) and value:
        return {"": value}
    if isinstance(value, list | tuple) and all(isinstance(part, dict) for part in value):
        return {f"{place}.": part for place, part in enumerate(value)}
    return {}


def bare_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the ``module`` that DataParallel puts before what it wraps: the whole network or a part of it.

    No network here calls a part of itself ``module``, so what is left is compared with the expected names as ever.
    Names stay as they are if two of them would become one.
    """
    named = {".".join(part for part in name.split(".") if part != "module"): t for name, t in tensors.items()}
    return named if len(named) == len(tensors) else dict(tensors)


def _kind(value: object) -> str:
    if isinstance(value, Inert):
        return f"an object of {value.what.path!r}"
    if isinstance(value, Reference):
        return f"the name {value.path!r}"
    return "an empty dict" if value == {} else f"a {type(value).__name__}"


def _number(count: int) -> str:
    return {1: "one", 2: "two", 3: "three"}.get(count, str(count))
