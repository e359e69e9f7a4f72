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

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from annotators.checkpoints.pickles import Inert, NamedThing, in_short
from annotators.checkpoints.torch_files import Archive, read_archive, read_legacy, read_torchscript
from annotators.sizes import Config
from mitl.errors import AnnotatorError

Shape = tuple[int, ...]
AnyConfig = TypeVar("AnyConfig", bound=Config)
AnyModule = TypeVar("AnyModule", bound=nn.Module)

OURS = "mitl-annotator-1"
"""The format of weights that were trained or converted here."""
WRAPPERS = ("model", "state_dict")
"""Keys under which training scripts keep the weights."""


class TensorPart(Enum):
    """What of a file's tensor is one of the network's."""

    ALL = -1
    QUERIES, KEYS, VALUES = 0, 1, 2
    """A third of a tensor in which all three lie."""
    TRANSPOSED = 3


Naming = Callable[[str], tuple[str, TensorPart]]
"""The network's name of a tensor → the file's name, and the part of that tensor which it is."""


def same_name(name: str) -> tuple[str, TensorPart]:
    """The naming of files that use the network's own names."""
    return name, TensorPart.ALL


def renamed(
    whole: Mapping[str, tuple[str, TensorPart]],
    layers: Mapping[str, str] | None = None,
    within: Mapping[str, tuple[str, TensorPart]] | None = None,
) -> Naming:
    """The naming of files in which other beginnings stand for ours.

    Args:
        whole: our beginning → theirs.
        layers: the same of layers, which go by a number behind it.
        within: our beginning → theirs, of what stands behind a layer's number.
    """

    def naming(name: str) -> tuple[str, TensorPart]:
        front, table = "", whole
        for ours, theirs in (layers or {}).items():
            if name.startswith(ours):
                number, dot, name = name.removeprefix(ours).partition(".")
                front, table = f"{theirs}{number}{dot}", within or {}
                break
        start = next((start for start in table if name.startswith(start)), "")
        theirs, part = table.get(start, ("", TensorPart.ALL))
        return front + theirs + name.removeprefix(start), part

    return naming


def shapes_in(naming: Naming, ours: Mapping[str, Shape]) -> dict[str, Shape]:
    """Names and shapes that a file of this naming should have, of a network whose own are ``ours``."""
    shapes: dict[str, Shape] = {}
    for name, shape in ours.items():
        theirs, part = naming(name)
        fused = part not in (TensorPart.ALL, TensorPart.TRANSPOSED)
        shapes[theirs] = (
            (3 * shape[0], *shape[1:]) if fused else shape[::-1] if part is TensorPart.TRANSPOSED else shape
        )
    return shapes


def as_ours(naming: Naming, tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """The weights under our own ``names``; what else the file holds is left out, and so is what it lacks."""
    weights: dict[str, Tensor] = {}
    for name in names:
        theirs, part = naming(name)
        if theirs not in tensors:
            continue
        tensor = tensors[theirs]
        if part is TensorPart.TRANSPOSED:
            tensor = tensor.T
        elif part is not TensorPart.ALL:
            tensor = tensor.chunk(3)[part.value]
        weights[name] = tensor
    return weights


@dataclass(frozen=True, slots=True, eq=False)
class _Shapes:
    """The shapes of a file's tensors by the network's own names."""

    tensors: Mapping[str, Tensor]
    naming: Naming

    def size(self, name: str, axis: int) -> int | None:
        theirs, part = self.naming(name)
        shape = self.tensors[theirs].shape if theirs in self.tensors else ()
        axis = 1 - axis if part is TensorPart.TRANSPOSED else axis
        return shape[axis] if axis < len(shape) else None

    def layers(self, prefix: str) -> int:
        number = re.compile(re.escape(self.naming(prefix)[0]) + r"(\d{1,3})\.")
        return max((1 + int(match[1]) for name in self.tensors if (match := number.match(name))), default=0)


def unwrapped(path: Path, layout: str, saved: object) -> tuple[str, dict[str, Tensor], dict[str, object]]:
    """Take the weights out of what training scripts put around them: layout in words, tensors, other values.

    Raises:
        AnnotatorError: there are no weights, or something among them is not a tensor.
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
    if isinstance(value, NamedThing):
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
    """What is not a weight: word2idx, config, opt (as a dict), criterion, metadata; of safetensors its metadata
    strings. A value of an unknown class is an ``pickles.Inert`` with what the file says of it."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What a weights file is, compared with one network."""

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
        if "constants.pkl" in archive.records:  # of torch.jit.save alone
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
    may be missing; it is not a parameter.
    """
    tensors = checkpoint.tensors
    reasons = ignored or {}
    skipped = {
        name: why for name in tensors if name not in expected and (why := _reason(name, reasons)) is not None
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


HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""The weights in a folder of the Hugging Face hub, in order of preference."""


def hub_weights(folder: Path) -> Path:
    """The weights file of a folder that ``transformers`` or its hub wrote; AnnotatorError where there is none."""
    held = next((folder / name for name in HUB_FILES if (folder / name).is_file()), None)
    if held is None:
        raise AnnotatorError(
            f"the folder {str(folder)!r} holds no {' or '.join(HUB_FILES)}; name a file, or a folder of transformers"
        )
    return held


def json_object(text: str, what: str) -> dict[str, Any]:
    """The object that a text describes; AnnotatorError that begins with ``what`` where it is none."""
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotatorError(f"{what} is not readable as JSON: {error}") from error
    if not isinstance(stated, dict):
        raise AnnotatorError(f"{what} is a {type(stated).__name__}; it should be an object")
    return stated


def described(path: Path) -> dict[str, Any]:
    """The object in a file; AnnotatorError where there is none."""
    return json_object(path.read_text(encoding="utf-8", errors="replace"), repr(str(path)))


def config_of(
    checkpoint: Checkpoint, network: str, released: AnyConfig, naming: Naming | None = None
) -> AnyConfig:
    """The sizes that a file of ours states; of any other file those that its shapes show, else the released ones.

    Raises:
        AnnotatorError: a file of ours holds another network or states no sizes.
    """
    values, path = checkpoint.values, str(checkpoint.path)
    if values.get("format") != OURS:
        return released.shown(_Shapes(checkpoint.tensors, naming or same_name))
    if values.get("network") != network:
        raise AnnotatorError(f"{path!r} holds {values.get('network')!r}; it should hold {network!r}")
    try:
        return released.from_json(str(values.get("config")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AnnotatorError(f"{path!r} has no readable 'config' of {network}: {error}") from error


def contradictions(stated: object, computed: Mapping[str, object]) -> tuple[str, ...]:
    """The options that a file states beside its weights and that do not hold for what is computed, a sentence each.

    Args:
        stated: what the file says, by the names of its training script; anything but a mapping says nothing.
        computed: option → the value that is computed here; an option that is not in it does not matter here.
    """
    options = options_of(stated)
    return tuple(
        f"it was trained with {key} = {in_short(options[key])}, but what is computed is {key} = {right!r}"
        for key, right in computed.items()
        if key in options and not _is(options[key], right)
    )


def options_of(stated: object) -> Mapping[Any, Any]:
    """A mapping in a file, also one of an unknown class; empty for anything else."""
    if isinstance(stated, Inert):
        entries = [item for item in stated.items if isinstance(item, tuple) and len(item) == 2]
        return {key: value for key, value in entries if isinstance(key, str)}
    return stated if isinstance(stated, Mapping) else {}


def _is(value: object, right: object) -> bool:
    # A file may state anything: what tensors and objects say to == is not an answer.
    if isinstance(value, Inert):
        value = value.items
    return isinstance(value, bool | int | float | str | list | None) and value == right


def _problems(tensors: Mapping[str, Tensor]) -> Iterator[str]:
    strange = [name for name, tensor in tensors.items() if tensor.is_complex()]
    if strange:
        yield f"{len(strange)} tensors hold complex numbers; first: {strange[0]!r}"
    endless = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not _finite(tensor)]
    if endless:
        yield f"{len(endless)} tensors hold numbers that are not finite; first: {endless[0]!r}"


def _finite(tensor: Tensor) -> bool:
    """Whether no number is infinite or NaN, which both least and greatest would show: a 25th of ``isfinite``'s time."""
    numbers = tensor if tensor.element_size() > 1 else tensor.float()  # torch compares no numbers of 8 bits
    return tensor.numel() == 0 or all(end.isfinite() for end in torch.aminmax(numbers))


@dataclass(frozen=True, eq=False)
class Weights(Generic[AnyModule]):
    """A weights file and the network that it should fill."""

    network: str
    checkpoint: Checkpoint
    make: Callable[[], AnyModule]
    """Makes the network, which gets its memory with its weights."""
    what: str
    otherwise: str
    """What the file is where no key matches."""
    settings: Mapping[str, object]
    problems: Sequence[str] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    """As ``compare`` has them."""
    beside: Mapping[str, Shape] = field(default_factory=dict)
    """What the file must hold besides the network."""
    naming: Naming = same_name

    @cached_property
    def module(self) -> AnyModule:
        """The network without memory; AnnotatorError for sizes that are too great for any."""
        try:
            with torch.device("meta"), _Undrawn():
                return self.make()
        except RuntimeError as error:
            raise AnnotatorError(
                f"{str(self.checkpoint.path)!r} describes no {self.network}: {error}"
            ) from error

    @cached_property
    def examination(self) -> Examination:
        """The file compared with the network."""
        ours = {name: tuple(tensor.shape) for name, tensor in self.module.state_dict().items()}
        expected = {**shapes_in(self.naming, ours), **self.beside}
        examination = compare(
            self.network,
            self.checkpoint,
            expected,
            what=self.what,
            ignored=self.ignored,
            settings=self.settings,
        )
        what = self.what if examination.matched else self.otherwise
        return replace(examination, what=what, problems=(*examination.problems, *self.problems))

    def load(self) -> AnyModule:
        """The network with its weights, in evaluation mode.

        Raises:
            AnnotatorError: any key is missing, left over, of another shape or not finite.
        """
        ours = as_ours(self.naming, self.checkpoint.tensors, self.module.state_dict())
        load_strictly(self.module, ours, self.examination)
        return self.module.eval()


class _Undrawn(TorchFunctionMode):
    """Without memory nothing is drawn; torch would load its compiler for some of that, a second's work."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.Tensor.normal_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else None
        return func(*args, **(kwargs or {}))


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
