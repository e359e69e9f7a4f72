"""Files of ``torch.save``, zip archives and the older sequence of pickles, read by our own restricted machine.

The tensors are views of the mapped file (zip) or of memory filled from it (the older layout); what a pickle says of
offset, size and stride is checked against the storage before a tensor is made of it.
"""

from __future__ import annotations

import io
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotators.checkpoints.pickles import Call, Inert, NamedThing, unpickle
from mitl.errors import AnnotatorError

MAGIC = 0x1950A86A20F9469CFC6C
"""First pickle of a torch file before torch 1.6."""
LARGEST_PICKLE = 1 << 28
"""Bytes of a pickle inside an archive; those of the official files have less than a thousandth."""

STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
}


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """A row of numbers that tensors are views of."""

    numbers: Tensor
    """(numel,)"""


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a file that is not empty, read when they are needed; writing to them changes no file."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


class Archive:
    """The records of a zip archive of torch, by their names below the archive's own folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = map_file(path)
        try:
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise AnnotatorError(
                f"{str(path)!r} is a zip archive that is cut off or damaged ({error}); fetch it again"
            ) from error
        names = {info.filename for info in infos}
        inside = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(inside) != 1:
            held = ", ".join(f"{name:.60}" for name in sorted(names)[:3])
            raise AnnotatorError(
                f"{str(path)!r} is a zip archive, but not one of torch (it holds {held or 'nothing'}); "
                "unpack it if the weights are inside"
            )
        folder = inside.pop().removesuffix("data.pkl")
        self.records = {
            info.filename.removeprefix(folder): info for info in infos if info.filename.startswith(folder)
        }

    def small(self, name: str) -> bytes:
        """The bytes of a record that is not a storage."""
        info = self.records[name]
        if info.file_size > LARGEST_PICKLE:
            raise self.damaged(f"{name!r} has {info.file_size} bytes")
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(info)
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError) as error:
            raise self.damaged(f"{name!r}: {error!s:.200}") from error

    def storage(self, name: str, nbytes: int) -> Tensor:
        """(nbytes,) uint8, a view of the mapped file."""
        info = self.records.get(name)
        if info is None or info.compress_type != zipfile.ZIP_STORED or info.file_size < nbytes:
            raise self.damaged(f"it lacks the {nbytes} bytes of {name!r}")
        # The lengths of the name and of the extra field may differ from those in the archive's index.
        ends = (info.header_offset + 28, info.header_offset + 30)
        lengths = (self.bytes[end - 2 : end] for end in ends)
        start = info.header_offset + 30 + sum(int.from_bytes(length, "little") for length in lengths)
        if start + nbytes > len(self.bytes):
            raise self.damaged(f"{name!r} ends outside the file")
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self.bytes, dtype=torch.uint8, count=nbytes, offset=start)

    def damaged(self, how: str) -> AnnotatorError:
        """What to raise where the archive contradicts itself."""
        return AnnotatorError(f"{str(self.path)!r} is a damaged torch archive ({how}); fetch it again")


def read_archive(archive: Archive, calls: Mapping[str, Call] | None = None) -> object:
    """The object saved in a zip archive."""
    if archive.records.get("byteorder") and archive.small("byteorder").strip() != b"little":
        raise archive.damaged("its numbers are written big end first")
    storages: dict[str, Storage] = {}

    def persistent(pid: Any) -> Storage:
        kind, dtype, key, numel = _storage_id(pid)
        if len(pid) != 5:
            raise ValueError(f"a {kind} described by {len(pid)} words")
        if key not in storages:
            raw = archive.storage(f"data/{key}", numel * dtype.itemsize)
            aligned = raw.clone() if raw.data_ptr() % dtype.itemsize else raw
            storages[key] = Storage(aligned.view(dtype))
        return storages[key]

    file = io.BytesIO(archive.small("data.pkl"))
    return unpickle(file, archive.path, calls={**TENSORS, **(calls or {})}, persistent=persistent)


def read_legacy(path: Path) -> object:
    """The object saved by torch before 1.6, Python 2's included."""
    file = map_file(path)
    read: Callable[[], object] = lambda: unpickle(file, path)  # noqa: E731
    if read() != MAGIC:
        raise AnnotatorError(
            f"{str(path)!r} is a pickle, but not one of torch; save the weights by torch.save or as safetensors"
        )
    read(), read()  # version of the layout, facts about the machine
    storages: dict[str, Tensor] = {}

    def persistent(pid: Any) -> object:
        _, dtype, key, numel = _storage_id(pid)
        if key not in storages:
            nbytes = numel * dtype.itemsize
            if nbytes + sum(map(len, storages.values())) > len(file):
                raise ValueError(f"{nbytes} bytes of numbers in a file of {len(file)}")
            storages[key] = torch.empty(nbytes, dtype=torch.uint8)
        view = pid[5] if len(pid) > 5 else None
        if view is None:
            return Storage(storages[key].view(dtype))
        _, offset, length = view
        return Storage(storages[key].view(dtype)[_count(offset) : _count(offset) + _count(length)])

    saved = unpickle(file, path, calls=TENSORS, persistent=persistent)
    keys = read()
    if not isinstance(keys, list) or {str(key) for key in keys} != set(storages):
        raise AnnotatorError(f"{str(path)!r} is a damaged torch file; fetch it again")
    for key in keys:
        _fill(storages[str(key)], file, path)
    return saved


def _fill(storage: Tensor, file: mmap.mmap, path: Path) -> None:
    # Eight bytes with the number of elements, then the numbers.
    start = file.tell() + 8
    if start + len(storage) > len(file):
        raise AnnotatorError(f"{str(path)!r} is cut off; fetch it again")
    if len(storage):
        storage.copy_(torch.frombuffer(file, dtype=torch.uint8, count=len(storage), offset=start))
    file.seek(start + len(storage))


def _storage_id(pid: Any) -> tuple[str, torch.dtype, str, int]:
    if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
        raise ValueError("a reference to something that is not a storage")
    kind, what, key, _, numel = pid[:5]
    if not isinstance(what, NamedThing) or what.name not in STORAGES or not isinstance(key, str):
        raise ValueError("a storage of an unknown type")
    return kind, STORAGES[what.name], key, _count(numel)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 48:
        raise ValueError("a size that is not a natural number")
    return value


def _tensor(storage: Any, offset: int, size: Sequence[int], stride: Sequence[int], *_: object) -> Tensor:
    """A view of a storage; ValueError where it would reach outside."""
    if not isinstance(storage, Storage) or len(size) != len(stride):
        raise ValueError("a tensor without its storage")
    sizes, strides = [_count(n) for n in size], [_count(n) for n in stride]
    reach = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) + 1 if all(sizes) else 0
    if _count(offset) + reach > len(storage.numbers):
        raise ValueError("a tensor that reaches outside its storage")
    if prod(sizes) > len(storage.numbers):
        raise ValueError("a tensor that repeats its numbers")
    return storage.numbers.as_strided(sizes, strides, offset)


def _parameter(data: Any, *_: object) -> Tensor:
    if not isinstance(data, Tensor):
        raise ValueError("a parameter that is not a tensor")
    return data


TENSORS: dict[str, Call] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
}
"""The calls that make tensors of weights; quantised, sparse and nested ones are refused like any other call."""


DEEPEST, MOST_MODULES = 64, 1 << 16
"""Modules within modules, and all of them; more must be a loop, or one that is named again and again."""

PICKLED: dict[str, Call] = {
    "torch.jit._pickle.restore_type_tag": lambda value, *_: value,
    "torch.jit._pickle.build_intlist": lambda value: value,
    "torch.jit._pickle.build_doublelist": lambda value: value,
    "torch.jit._pickle.build_boollist": lambda value: value,
    "torch.jit._pickle.build_tensorlist": lambda value: value,
}
"""What the archive's writer puts around typed lists."""


def read_torchscript(archive: Archive) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Parameters and buffers by flat name, in the order of the archive, and the other tensors and plain values."""
    top = read_archive(archive, PICKLED)
    if not isinstance(top, Inert) or not isinstance(top.state, dict):
        raise archive.damaged("it holds no module")
    declared = _declared(archive)
    tensors: dict[str, Tensor] = {}
    values: dict[str, object] = {}
    for name, owner, value in _members(top, "", archive, 0, count()):
        attribute = name.rpartition(".")[2]
        if isinstance(value, Tensor) and attribute in declared.get(owner, {attribute}):
            tensors[name] = value
        elif attribute not in ("training", "_is_full_backward_hook"):
            values[name] = value
    return tensors, values


def _members(
    module: Inert, prefix: str, archive: Archive, depth: int, met: Iterator[int]
) -> Iterator[tuple[str, str, object]]:
    if depth > DEEPEST or next(met) > MOST_MODULES:
        raise archive.damaged("a module holds itself, or too many others")
    state = module.state if isinstance(module.state, dict) else {}
    for name, value in state.items():
        if isinstance(value, Inert):
            yield from _members(value, f"{prefix}{name}.", archive, depth + 1, met)
        else:
            yield f"{prefix}{name}", module.what.path, value


def _declared(archive: Archive) -> dict[str, set[str]]:
    """Path of a class -> its parameters and buffers."""
    declared: dict[str, set[str]] = {}
    for record in archive.records:
        if record.startswith("code/") and record.endswith(".py"):
            module = record[len("code/") : -len(".py")].replace("/", ".")
            text = archive.small(record).decode(errors="replace")
            for name, body in re.findall(r"^class (\w+)\(.*?\):\n((?:  .*\n|\n)*)", text, re.MULTILINE):
                lists = re.findall(r"^  __(?:parameters|buffers)__ = \[(.*)\]$", body, re.MULTILINE)
                # Before torch 1.6 there was no second line, and every tensor was a weight.
                if len(lists) == 2:
                    declared[f"{module}.{name}"] = set(re.findall(r'"(\w+)"', " ".join(lists)))
    return declared
