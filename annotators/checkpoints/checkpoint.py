"""Weights files as their authors wrote them, read without running anything in them.

Nothing here knows a network: ``read_checkpoint`` opens a file of any layout, ``compare`` holds its tensors against
what a network expects, ``Examination`` is what ``mitl annotators check`` says of a file.

One reader serves all files that hold a pickle (zip archives of torch, the older layout, Python 2's, TorchScript):
the restricted machine of ``pickles``. ``torch.load(weights_only=True)`` is not tried first, for it
refuses what official files hold beside their weights (a Namespace, NumPy scalars, Lightning's and Sacred's classes),
and to allow those globals is to import and call what the file names, in a list that the whole process shares. Here
unknown names stay inert, and a weight is either a tensor made by our own function or the file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from annotators.checkpoints.pickles import Inert, Reference
from annotators.checkpoints.plain_values import in_short
from annotators.checkpoints.torch_files import (
    Archive,
    is_torchscript,
    read_archive,
    read_legacy,
    read_torchscript,
)
from mitl.errors import AnnotatorError

Shape = tuple[int, ...]
Config = TypeVar("Config")
AnyModule = TypeVar("AnyModule", bound=nn.Module)

OURS = "mitl-annotator-1"
"""The format of weights that were trained or converted here."""
WRAPPERS = ("model", "state_dict")
"""Keys under which training scripts keep the weights."""
ENCODERS = {"0.": "img_enc.", "1.": "txt_enc."}
"""Places of a list of two state dicts -> whose weights they are."""


def unwrapped(path: Path, layout: str, saved: object) -> tuple[str, dict[str, Tensor], dict[str, object]]:
    """Take the weights out of what training scripts put around them: layout in words, tensors, other values.

    Raises:
        AnnotatorError: there are no weights, or something among them is no tensor.
    """
    words, values = [layout], dict[str, object]()
    key = next((key for key in WRAPPERS if isinstance(saved, dict) and _parts(saved.get(key))), None)
    if key is not None and isinstance(saved, dict):
        words.append(f"dict with {key!r}")
        values = {str(name): value for name, value in saved.items() if name != key}
        saved = saved[key]
    parts = _parts(saved)
    if not parts:
        raise AnnotatorError(
            f"{str(path)!r} holds {_kind(saved)}, not weights; save its state_dict() and name that file"
        )
    count = {1: "one", 2: "two", 3: "three"}.get(len(parts), str(len(parts)))
    words.append(f"list of {count} dicts" if isinstance(saved, list | tuple) else "state dict")
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


_COUNTER = ".num_batches_tracked"
_NO_COUNTER = (
    "a batch norm's count of training steps, which torch before 0.4.1 did not keep and inference never reads"
)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """One weights file: its tensors by flat name, and the plain values that lie beside them."""

    path: Path
    layout: str
    """In words, outermost first: "torch zip, dict with 'model', list of two dicts", "TorchScript archive"."""
    tensors: Mapping[str, Tensor]
    """Flat names; ``module`` of DataParallel is gone, wherever it stood; of a list of dicts the names begin with
    ``0.``, ``1.`` ..."""
    values: Mapping[str, object] = field(default_factory=dict)
    """What is no weight: word2idx, config, opt (as a dict), criterion, metadata; of safetensors its metadata
    strings. A value of an unknown class is an ``pickles.Inert`` with what the file says of it."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What a weights file is, held against one network."""

    network: str
    path: str
    layout: str
    what: str
    """One line: "PVSE, K = 2, 11,755 words"."""
    matched: int
    missing: Sequence[str] = ()
    unexpected: Sequence[str] = ()
    misshapen: Sequence[str] = ()
    """"key: (1, 1024) where (2, 1024) is expected"."""
    ignored: Mapping[str, str] = field(default_factory=dict)
    """Keys that are known and not needed, with the reason."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Keys that the network has and the file need not have, with the reason."""
    problems: Sequence[str] = ()
    """Anything else that is wrong, a sentence each."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """What was read off the file: {"k": 2, "words": 11755}."""

    def with_problems(self, problems: Iterable[str], *, otherwise: str) -> Examination:
        """These as well; ``otherwise`` says what the file is where no key matches."""
        what = self.what if self.matched else otherwise
        return replace(self, what=what, problems=(*self.problems, *problems))

    @property
    def fits(self) -> bool:
        """Whether the file can be used as it is."""
        return not (self.missing or self.unexpected or self.misshapen or self.problems)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file of torch (zip or legacy pickle, Python 2's too), TorchScript or safetensors.

    The tensors of zip archives and safetensors are views of the file, read when they are used.

    Raises:
        AnnotatorError: the file is missing, cut off, of no known form, or its pickle asks for anything but
            tensors and plain values; nothing it asks for is ever called.
    """
    if path.is_dir():
        raise AnnotatorError(f"{str(path)!r} is a folder; name the weights file in it")
    try:
        with path.open("rb") as file:
            head = file.read(512)
        return _read(path, head)
    except FileNotFoundError as error:
        raise AnnotatorError(f"no weights file {str(path)!r}") from error
    except OSError as error:
        raise AnnotatorError(f"{str(path)!r} is not readable: {error.strerror or error}") from error


def _read(path: Path, head: bytes) -> Checkpoint:
    if head.startswith(b"PK"):
        archive = Archive(path)
        if is_torchscript(archive):
            tensors, values = read_torchscript(archive)
            return Checkpoint(path, "TorchScript archive", tensors, values)
        return Checkpoint(path, *unwrapped(path, "torch zip", read_archive(archive)))
    if head[8:9] == b"{":
        return _from_safetensors(path)
    if head.startswith(b"\x80"):
        return Checkpoint(path, *unwrapped(path, "legacy torch file", read_legacy(path)))
    raise AnnotatorError(f"{str(path)!r} is {_what_else(head)}")


def _what_else(head: bytes) -> str:
    start = head.lstrip().lower()
    if not head:
        return "empty; fetch it again"
    if start.startswith(b"version https://git-lfs"):
        return "a pointer of git-lfs, not the file itself; run git lfs pull"
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page, not weights; the download asked for a confirmation or a login"
    if start.startswith(b"\x1f\x8b") or head[257:262] == b"ustar":
        return "a packed archive; unpack it and name the weights file in it"
    return "no weights file that is known here; it should be one of torch, TorchScript or safetensors"


def _from_safetensors(path: Path) -> Checkpoint:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            values = dict(file.metadata() or {})
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise AnnotatorError(
            f"{str(path)!r} is a safetensors file that is cut off or damaged ({error}); fetch it again"
        ) from error
    return Checkpoint(path, "safetensors", bare_names(tensors), values)


def compare(
    network: str,
    checkpoint: Checkpoint,
    expected: Mapping[str, Shape],
    *,
    what: str,
    ignored: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Examination:
    """Hold a checkpoint's tensors against the names and shapes a network expects.

    ``ignored``: names that the file may hold and the network does not need, with the reason; one that ends in a dot
    stands for all that begin so. Weights that are not finite or are complex are problems. A counter of training steps
    may be missing; it is no parameter.
    """
    tensors = checkpoint.tensors
    known = ignored or {}
    skipped = {
        name: why for name in tensors if name not in expected and (why := _reason(name, known)) is not None
    }
    absent = {name: _NO_COUNTER for name in expected if name not in tensors and name.endswith(_COUNTER)}
    shared = [name for name in expected if name in tensors]
    fitting = [name for name in shared if tuple(tensors[name].shape) == tuple(expected[name])]
    return Examination(
        network=network,
        path=str(checkpoint.path),
        layout=checkpoint.layout,
        what=what,
        matched=len(fitting),
        missing=tuple(name for name in expected if name not in tensors and name not in absent),
        unexpected=tuple(name for name in tensors if name not in expected and name not in skipped),
        misshapen=tuple(
            f"{name}: {tuple(tensors[name].shape)} where {tuple(expected[name])} is expected"
            for name in shared
            if tuple(tensors[name].shape) != tuple(expected[name])
        ),
        ignored=skipped,
        absent=absent,
        problems=tuple(_problems({name: tensors[name] for name in fitting})),
        settings=dict(settings or {}),
    )


def _reason(name: str, known: Mapping[str, str]) -> str | None:
    """Why this name is not needed; None if it is not known."""
    beginnings = (why for start, why in known.items() if start.endswith(".") and name.startswith(start))
    return known.get(name) or next(beginnings, None)


def shapes_of(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Their shapes by name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def own_name(name: str) -> str:
    """The network's name of a weight that may stand in a list of two state dicts (VSRN's files, old ones of PVSE)."""
    return ENCODERS.get(name[:2], name[:2]) + name[2:]


def without_memory(make: Callable[[Config], AnyModule], config: Config) -> AnyModule:
    """A network of these sizes that gets its memory with its weights (``load_strictly``)."""
    with torch.device("meta"):
        return make(config)


def stated_config(checkpoint: Checkpoint, network: str, read: Callable[[str], Config]) -> Config | None:
    """The sizes that a file of ours states; None for a file that somebody else wrote.

    Raises:
        AnnotatorError: a file of ours holds another network or states no sizes.
    """
    values, path = checkpoint.values, str(checkpoint.path)
    if values.get("format") != OURS:
        return None
    if values.get("network") != network:
        raise AnnotatorError(f"{path!r} holds {values.get('network')!r}; it should hold {network!r}")
    try:
        return read(str(values.get("config")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AnnotatorError(f"{path!r} has no readable 'config' of {network}: {error}") from error


def contradictions(stated: object, computed: Mapping[str, object]) -> tuple[str, ...]:
    """The options that a file states beside its weights and that do not hold for what is computed, a sentence each.

    Args:
        stated: what the file says, by the names of its training script; anything but a mapping says nothing.
        computed: option → the value that is computed here; an option that is not in it does not matter here.
    """
    given = options_of(stated)
    return tuple(
        f"it was trained with {key} = {in_short(given[key])}, but what is computed is {key} = {right!r}"
        for key, right in computed.items()
        if key in given and not _is(given[key], right)
    )


def options_of(stated: object) -> Mapping[Any, Any]:
    """A mapping in a file, also one of an unknown class; empty for anything else."""
    if isinstance(stated, Inert):
        entries = [item for item in stated.items if isinstance(item, tuple) and len(item) == 2]
        return {key: value for key, value in entries if isinstance(key, str)}
    return stated if isinstance(stated, Mapping) else {}


def _is(value: object, right: object) -> bool:
    # A file may state anything: what tensors and objects say to == is no answer.
    if isinstance(value, Inert):
        value = value.items
    return isinstance(value, bool | int | float | str | list | None) and value == right


def _problems(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    strange = [name for name, tensor in tensors.items() if tensor.is_complex()]
    if strange:
        yield f"{len(strange)} tensors hold complex numbers; first: {strange[0]!r}"
    endless = [name for name, tensor in tensors.items() if not _is_finite(tensor)]
    if endless:
        yield f"{len(endless)} tensors hold numbers that are not finite; first: {endless[0]!r}"


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def load_strictly(module: nn.Module, tensors: Mapping[str, Tensor], examination: Examination) -> None:
    """Put the tensors (as float32) into the module; AnnotatorError where anything is missing or left over.

    ``tensors`` go by the module's own names and may hold what the examination ignores. A module on the device
    ``meta`` gets its memory here. The message names the file, the network, how many keys match and the first that
    does not.
    """
    if not examination.fits:
        raise _misfit(examination)
    needed = set(module.state_dict())
    kept = {name: tensor for name, tensor in tensors.items() if name in needed}
    counters = {name for name in needed if name.endswith(_COUNTER)}
    kept |= {name: torch.zeros((), dtype=torch.long) for name in counters - set(tensors)}
    left = [name for name in tensors if name not in needed and name not in examination.ignored]
    absent = sorted(needed - set(kept))
    if left or absent:
        first = f"it lacks {absent[0]!r}" if absent else f"{left[0]!r} is left over"
        raise AnnotatorError(
            f"{examination.path!r} does not fit {examination.network}: {first} "
            f"({len(kept)} of {len(needed)} keys match)"
        )
    empty = any(tensor.is_meta for tensor in module.state_dict().values())
    values = {name: _as_float32(tensor, copy=empty) for name, tensor in kept.items()}
    try:
        module.load_state_dict(values, strict=True, assign=empty)
    except RuntimeError as error:
        line = str(error).splitlines()[-1].strip()
        raise AnnotatorError(f"{examination.path!r} does not fit {examination.network}: {line}") from error


def _as_float32(tensor: Tensor, *, copy: bool) -> Tensor:
    dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
    if copy:
        # Without memory of its own, in order, a module would keep the mapped file's.
        return torch.empty(tensor.shape, dtype=dtype).copy_(tensor)
    return tensor.to(dtype)


def _misfit(examination: Examination) -> AnnotatorError:
    total = examination.matched + len(examination.missing) + len(examination.misshapen)
    faults = [
        *(f"it lacks {name!r}" for name in examination.missing),
        *(f"it has {line}" for line in examination.misshapen),
        *(f"it has {name!r} too many" for name in examination.unexpected),
        *examination.problems,
    ]
    more = f", and {len(faults) - 1} faults more" if len(faults) > 1 else ""
    return AnnotatorError(
        f"{examination.path!r} ({examination.layout}) does not fit {examination.network}: "
        f"{examination.matched} of {total} keys match; {faults[0]}{more}"
    )
