"""What ``mitl evaluate`` was asked: which models, in which files, on which tasks, against what, and how."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from annotators.inputs.embedding_files import ids_beside
from mitl.errors import MetricError, UsageError
from mitl.metrics.positives import Short
from mitl.metrics.table import USUAL, MetricRequest, asked_metrics
from mitl.records import Direction
from mitl.records.similarity import Likeness
from mitl.stages.evaluating.figures import Sampling
from mitl.stages.evaluating.models import Modality


class NamedTask(StrEnum):
    """What a model can be scored on: retrieval between two sides and within one, and correlation with ratings."""

    I2T = "i2t"
    T2I = "t2i"
    T2T = "t2t"
    I2I = "i2i"
    STS = "sts"
    SIS = "sis"
    SITS = "sits"

    @property
    def likeness(self) -> Likeness:
        """The ratings that it is made from."""
        of_one_side = {"t2t": Likeness.STS, "sts": Likeness.STS, "i2i": Likeness.SIS, "sis": Likeness.SIS}
        return of_one_side.get(self, Likeness.SITS)

    @property
    def sides(self) -> frozenset[Modality]:
        """The sides whose items are compared."""
        return frozenset(self.likeness.sides)

    @property
    def needs_ratings(self) -> bool:
        """Whether nothing but ratings will do; any set of positives has images and captions that match."""
        return self not in (NamedTask.I2T, NamedTask.T2I)


EVERY_TASK = frozenset(NamedTask)


def directions_of(tasks: Sequence[NamedTask], direction: str) -> tuple[Direction, ...]:
    """The directions between two sides: those of the tasks named, else what ``--direction`` says.

    Raises:
        UsageError: both are given.
    """
    if tasks and direction != "both":
        raise UsageError("--task names the directions too; leave --direction out")
    if tasks:
        return tuple(way for way in Direction if way.value in {task.value for task in tasks})
    return tuple(Direction) if direction == "both" else (Direction(direction),)


Similarity = Literal["dot", "cosine"]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model, before they are read; one of the three kinds."""

    name: str
    embeddings: tuple[Path | None, Path | None] | None = None
    """Of the images and of the captions; one of them may be missing."""
    similarities: Path | None = None
    rankings: tuple[Path, ...] = ()
    image_ids: Path | None = None
    caption_ids: Path | None = None


@dataclass(frozen=True, slots=True)
class Against:
    """The sets that models are compared with, besides the originals of a project."""

    release: Path | None = None
    official: Sequence[str] = ()
    cxc: Path | None = None
    """Folder of ratings in CxC's layout."""
    split: str | None = None
    """Of that folder; see ``choose_split`` where None."""
    objects: Sequence[Path] = ()
    """Files that say which objects an image shows."""
    graded: bool = False
    """Whether graded labels of the release and of CxC are scored too."""
    pseudo_labels: bool = False
    """Whether models are compared with labels made from the captions' likeness."""
    label_embeddings: Path | None = None
    """The captions' embeddings that these labels are made from; of the sentence encoder where None."""
    fair: bool = False
    """Whether the release's audit says what its holes hide of each model."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """One call."""

    against: Against = field(default_factory=Against)
    models: Sequence[ModelFiles] = ()
    annotators: Sequence[str] = ()
    baselines: Sequence[str] = ()
    """Built-in models of one modality, by name."""
    captions: Path | None = None
    """The captions' texts, outside a project."""
    tasks: Sequence[NamedTask] = ()
    """Those that are asked for by name; all that a model can do where none is."""
    similarity: Similarity = "dot"
    directions: Sequence[Direction] = tuple(Direction)
    wanted: MetricRequest = field(default_factory=MetricRequest.of)
    sampling: Sampling = field(default_factory=Sampling)
    paired_with: str | None = None
    """The model that the others are tested against."""
    csv: Path | None = None
    latex: Path | None = None

    def __post_init__(self) -> None:
        names = [*(model.name for model in self.models), *self.baselines, *self.annotators]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise UsageError(f"two models are called {twice!r}; give each a name of its own")


def parse_metrics(texts: Sequence[str], short: Short) -> MetricRequest:
    """The metrics named, several in one text separated by commas; the usual ones where none is.

    Raises:
        UsageError: there is no such metric.
    """
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    try:
        return MetricRequest(asked_metrics(names or USUAL), short)
    except MetricError as error:
        raise UsageError(str(error)) from error


def files_of_options(given: ModelFiles) -> list[ModelFiles]:
    """The model that single options name, or none.

    Raises:
        UsageError: files of two kinds, or ids or a name without such files.
    """
    named = [kind for kind in ("embeddings", "similarities", "rankings") if getattr(given, kind)]
    if len(named) > 1:
        raise UsageError("files of one kind make a model; name several models by --model NAME=FILE[,FILE]")
    ids_of = {"image": given.image_ids, "caption": given.caption_ids}
    if any(ids_of.values()) and named not in (["embeddings"], ["similarities"]):
        raise UsageError("--image-ids and --caption-ids belong to embeddings or similarities in a .npy")
    for side, embeddings in zip(ids_of, given.embeddings or (), strict=False):
        if ids_of[side] and embeddings is None:
            raise UsageError(f"--{side}-ids are given, but no --{side}-embeddings; give both, or neither")
    if given.name and not named:
        raise UsageError("--name belongs to embeddings, similarities or rankings; --model names its own")
    return [replace(given, name=given.name or kind) for kind in named]


def parse_model(text: str) -> ModelFiles:
    """``NAME=FILE[,FILE]`` as files whose kind is read from them; embeddings may leave a side empty.

    Raises:
        UsageError: no name, no file, or more files than a model has.
        MetricError: a file is missing or holds none of the three kinds.
    """
    name, equals, rest = text.partition("=")
    parts = [Path(part) if part else None for part in rest.split(",")]
    files = tuple(part for part in parts if part is not None)
    if not equals or not name or not files or len(parts) > 2:
        raise UsageError(
            f"{text!r} names no model; write NAME=IMAGES,CAPTIONS for embeddings ('NAME=IMAGES,' or 'NAME=,CAPTIONS' "
            "for one side alone), NAME=FILE for similarities, or NAME=I2T,T2I for rankings"
        )
    kinds = {_kind(need_file(path, f"a part of the model {name!r}")) for path in files}
    if kinds == {"similarities"} and len(parts) == 1:
        return ModelFiles(name, similarities=files[0])
    if kinds == {"rankings"}:
        return ModelFiles(name, rankings=files)
    if kinds <= {"embeddings", "similarities"} and len(parts) == 2:
        return ModelFiles(name, embeddings=(parts[0], parts[1]))
    if kinds == {"embeddings"}:
        raise UsageError(
            f"{text!r} does not say whose embeddings it holds; write {text + ','!r} for images alone, "
            f"{f'{name}=,{files[0]}'!r} for captions alone, or {name}=IMAGES,CAPTIONS. A file of similarities has the "
            "ids of both sides in its .npz, or beside its .npy in NAME.image_ids.txt and NAME.caption_ids.txt"
        )
    raise UsageError(
        f"the files of {text!r} hold {' and '.join(sorted(kinds))}; a model is two files of embeddings, one of "
        "similarities, or one or two of rankings"
    )


def need_file(path: Path, what: str) -> Path:
    """The path; MetricError if there is no file, which should hold ``what``."""
    if not path.is_file():
        raise MetricError(f"there is no file {str(path)!r}; it should hold {what}")
    return path


def _kind(path: Path) -> str:
    if path.suffix == ".json":
        return "rankings"
    if path.suffix == ".npy":
        return "similarities" if ids_beside(path, "image_ids") else "embeddings"
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return "rankings" if "rank" in pq.read_schema(path).names else "embeddings"
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise MetricError(f"{str(path)!r} is not readable as Parquet: {reason}") from error
    if path.suffix == ".npz":
        try:
            with zipfile.ZipFile(path) as archive:
                names = {name.removesuffix(".npy") for name in archive.namelist()}
        except (zipfile.BadZipFile, OSError) as error:
            raise MetricError(f"{str(path)!r} is not readable as an .npz archive: {error}") from error
        if "similarities" in names:
            return "similarities"
        return "rankings" if any(name.endswith("item_ids") for name in names) else "embeddings"
    raise MetricError(
        f"{str(path)!r} is not a file of a model; it should end in .npy, .npz, .parquet or .json"
    )
