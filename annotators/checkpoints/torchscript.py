"""The tensors of a TorchScript archive by their flat names; its code is never compiled.

An archive of ``torch.jit.save`` keeps the module tree as a pickle of objects whose classes are called
``__torch__.…``, and beside it the source of each class. A class says in two lines which of its attributes are
parameters and buffers; these lines are read as text, so that other tensors (a mask, say) are not taken for weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torch import Tensor

from annotators.checkpoints.pickles import Call, Inert
from annotators.checkpoints.torch_files import Archive, read_archive

DEEPEST = 64
"""Modules within modules; more must be a loop."""

PICKLED: dict[str, Call] = {
    "torch.jit._pickle.restore_type_tag": lambda value, *_: value,
    "torch.jit._pickle.build_intlist": lambda value: value,
    "torch.jit._pickle.build_doublelist": lambda value: value,
    "torch.jit._pickle.build_boollist": lambda value: value,
    "torch.jit._pickle.build_tensorlist": lambda value: value,
}
"""What the archive's writer puts around typed lists."""


def is_torchscript(archive: Archive) -> bool:
    """Whether this is an archive of ``torch.jit.save`` rather than of ``torch.save``."""
    return "constants.pkl" in archive.records


def read_torchscript(archive: Archive) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Parameters and buffers by flat name, in the order of the archive, and the other tensors and plain values."""
    top = read_archive(archive, PICKLED)
    if not isinstance(top, Inert) or not isinstance(top.state, dict):
        raise archive.damaged("it holds no module")
    declared = _declared(archive)
    tensors: dict[str, Tensor] = {}
    values: dict[str, object] = {}
    for name, owner, value in _members(top, "", archive, 0):
        attribute = name.rpartition(".")[2]
        if isinstance(value, Tensor) and attribute in declared.get(owner, {attribute}):
            tensors[name] = value
        elif attribute not in ("training", "_is_full_backward_hook"):
            values[name] = value
    return tensors, values


def _members(module: Inert, prefix: str, archive: Archive, depth: int) -> Iterator[tuple[str, str, object]]:
    if depth > DEEPEST:
        raise archive.damaged("a module holds itself")
    state = module.state if isinstance(module.state, dict) else {}
    for name, value in state.items():
        if isinstance(value, Inert):
            yield from _members(value, f"{prefix}{name}.", archive, depth + 1)
        else:
            yield f"{prefix}{name}", module.what.path, value


def _declared(archive: Archive) -> dict[str, set[str]]:
    """Path of a class -> its parameters and buffers."""
    found: dict[str, set[str]] = {}
    for record in archive.records:
        if record.startswith("code/") and record.endswith(".py"):
            module = record[len("code/") : -len(".py")].replace("/", ".")
            text = archive.small(record).decode(errors="replace")
            for name, body in re.findall(r"^class (\w+)\(.*?\):\n((?:  .*\n|\n)*)", text, re.MULTILINE):
                lists = re.findall(r"^  __(?:parameters|buffers)__ = \[(.*)\]$", body, re.MULTILINE)
                # Before torch 1.6 there was no second line, and every tensor was a weight.
                if len(lists) == 2:
                    found[f"{module}.{name}"] = set(re.findall(r'"(\w+)"', " ".join(lists)))
    return found
