"""Reading whatever `mitl init` names into one in-memory form, and showing what was read: counts, and three items."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from mitl.datasets.assembling import content_hash, require_same
from mitl.datasets.composed_sets import CIRCO, CIRR, composed_set_kind, read_composed_set
from mitl.datasets.exclusions import paper_exclusions, read_exclusions, resolve
from mitl.datasets.files import is_parquet
from mitl.datasets.finding import cached_folder
from mitl.datasets.table import TableReading, Told, read_table
from mitl.datasets.text_sets import BEIR, MSMARCO, read_text_set, text_set_kind
from mitl.errors import UsageError
from mitl.positives.folders import dataset_of, require_one_dataset
from mitl.progress import Progress, no_progress
from mitl.records import Exclusion, Rating, RatingFile, RetrievalSet, Table
from mitl.records.enums import PartKind
from mitl.settings import SEED, WORLD_FOLDER

if TYPE_CHECKING:
    from mitl.datasets.checking import Checked

TEST = "test"
KINDS = ("scenes", "coco", "flickr30k", "table")
WORLDS = ("images", "texts", "sounds", "videos", "composed")
"""What ``scenes`` can be."""
PAPER = "paper"


@dataclass(frozen=True, slots=True)
class DatasetSources:
    """The files and sizes that a data set is read from; which are needed depends on the kind."""

    kind: str
    name: str | None = None
    """In place of the reader's own."""
    captions: tuple[Path, ...] = ()
    split_file: Path | None = None
    split: str | None = None
    """``test`` where a Karpathy file is read and none is named."""
    columns: tuple[str, ...] = ()
    """Of tables: ``ROLE=COLUMN``."""
    skip_empty: bool = False
    caption_ids: Path | None = None
    images: Path | None = None
    image_url: str | None = None
    n_images: int = 300
    """Of ``scenes``."""
    world: str = "images"
    """Of ``scenes``, what is generated."""
    defect_share: float | None = None
    cxc: Path | None = None
    exclusions: tuple[str, ...] = ()
    """Files, or ``paper`` for the lists of ECCV Caption's appendix C.1."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A data set with what is known about it."""

    data: RetrievalSet
    ratings: tuple[Rating, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    told: Told = field(default_factory=Told)
    rated_in: RatingFile | None = None
    """Where the ratings were read from."""


def kind_or_path(given: str, captions: Sequence[Path]) -> tuple[str, tuple[Path, ...], str | None]:
    """What ``--dataset`` names: (kind, files, name); the path of anything that is there is a table of that name.

    Otherwise it may be the name of a data set that Hugging Face's library has prepared on this machine.

    Raises:
        UsageError: it is neither, or files are named twice.
    """
    if given in KINDS:
        return given, tuple(captions), None
    path = Path(given).absolute()
    name = path.stem
    if not path.exists():
        prepared = cached_folder(given)
        if prepared is None:
            near = get_close_matches(given, KINDS, 1)
            raise UsageError(
                f"there is no data set {given!r}{f'; {near[0]!r} is one' if near else ''}: give "
                f"{', '.join(map(repr, KINDS))}, the path of a file or folder that is there, or the name of what "
                "load_dataset of the datasets library prepared on this machine"
            )
        path, name = prepared, given.partition(":")[0].rpartition("/")[2]
    if captions:
        raise UsageError(
            f"--dataset {given} and --captions {captions[0]} both name what to read; leave one out"
        )
    return text_set_kind(path) or composed_set_kind(path) or "table", (path,), name


def load(
    sources: DatasetSources,
    project: Path,
    *,
    seed: int = SEED,
    expected: str | None = None,
    progress: Progress = no_progress,
) -> Loaded:
    """Read a data set, CxC's ratings and exclusion lists; ``scenes`` writes its pictures into the project.

    Args:
        expected: content hash of the data set that the project holds already; nothing else may take its place.

    Raises:
        UsageError: a file that this kind needs is not named.
        DatasetError: a file is missing, malformed or contradicts another.
        ReleaseError: the ratings are those of a release of another data set.
    """
    # What can be missing or malformed is read first: a generated world writes its pictures.
    ratings: tuple[Rating, ...] = ()
    if sources.cxc is not None:
        from mitl.datasets.cxc import read_sits

        ratings = tuple(read_sits(sources.cxc))
    lists = [
        (paper_exclusions(), False) if source == PAPER else (read_exclusions(Path(source)), True)
        for source in sources.exclusions
    ]
    told = Told()
    data = _read(sources, project, seed, expected, progress, told)
    data = replace(data, name=sources.name or data.name)
    rated_in = None
    if sources.cxc is not None:
        rated = repr(str(sources.cxc)), dataset_of(sources.cxc.parent)
        require_one_dataset(
            ("this data set", content_hash(data)), rated, remedy="give ratings of this data set"
        )
        rated_in = _rating_file(sources.cxc, data, ratings)
    exclusions = [entry for rows, strict in lists for entry in resolve(rows, data, strict=strict)]
    return Loaded(data, ratings, tuple(exclusions), told, rated_in)


def _rating_file(path: Path, data: RetrievalSet, ratings: Sequence[Rating]) -> RatingFile:
    images, captions = ({item.external_id for item in items} for items in (data.images, data.captions))
    here = sum(row.image_external_id in images and row.caption_external_id in captions for row in ratings)
    with path.open("rb") as file:
        return RatingFile(path.name, hashlib.file_digest(file, "sha256").hexdigest(), here)


def _read(
    sources: DatasetSources,
    project: Path,
    seed: int,
    expected: str | None,
    progress: Progress,
    told: Told,
) -> RetrievalSet:
    if sources.kind == "scenes":
        return _scenes(sources, project, seed, expected, progress)
    if sources.kind == "coco":
        if sources.split == "train":
            told.lines.append(
                "papers train on Karpathy's train and restval: --split train+restval reads both"
            )
        return _coco(sources)
    if sources.kind == "flickr30k":
        from mitl.datasets.coco import read_flickr30k

        if sources.split_file is None:
            raise UsageError(
                "flickr30k is read from its Karpathy file; give --split-file dataset_flickr30k.json"
            )
        return read_flickr30k(
            sources.split_file,
            split=TEST if sources.split is None else sources.split,
            images=sources.images,
            url_template=sources.image_url,
        )
    reading = TableReading(sources.columns, sources.split, sources.skip_empty)
    if sources.kind == "table":
        return read_table(
            _one(sources.captions, "a table of pairs", "--captions pairs.csv"),
            images=sources.images,
            url_template=sources.image_url,
            unpack=project / WORLD_FOLDER,
            reading=reading,
            told=told,
        )
    if sources.kind in (BEIR, MSMARCO):
        (folder,) = sources.captions
        return read_text_set(folder, sources.kind, reading, told)
    if sources.kind in (CIRR, CIRCO):
        (folder,) = sources.captions
        return read_composed_set(folder, sources.kind, reading, told, sources.images)
    raise UsageError(f"no data set kind called {sources.kind!r}; known: {', '.join(KINDS)}")


def _coco(sources: DatasetSources) -> RetrievalSet:
    if sources.split is not None and sources.split_file is None:
        raise UsageError(
            "--split names a split of a Karpathy file; give --split-file dataset_coco.json too, or leave --split out"
        )
    if any(is_parquet(path) or path.suffix.lower() == ".csv" for path in sources.captions):
        if sources.split_file is not None:
            raise UsageError(
                "--split-file cuts the official captions JSONs; of compact captions keep a part with --caption-ids FILE"
            )
        from mitl.datasets.coco import read_compact

        return read_compact(
            _one(sources.captions, "a compact captions file", "--captions captions.parquet"),
            caption_ids=sources.caption_ids,
            images=sources.images,
            url_template=sources.image_url,
        )
    from mitl.datasets.coco import read_coco

    if not sources.captions and sources.split_file is None:
        raise UsageError(
            "coco needs its captions; give --captions captions_val2014.json with --split-file dataset_coco.json "
            "or --caption-ids FILE, or a compact captions file"
        )
    return read_coco(
        sources.captions,
        karpathy=sources.split_file,
        split=TEST if sources.split is None else sources.split,
        caption_ids=sources.caption_ids,
        images=sources.images,
        url_template=sources.image_url,
    )


def _scenes(
    sources: DatasetSources, project: Path, seed: int, expected: str | None, progress: Progress
) -> RetrievalSet:
    from mitl.datasets.scenes.files import write_world
    from mitl.datasets.scenes.world import DEFECT_SHARE, generate

    share = DEFECT_SHARE if sources.defect_share is None else sources.defect_share
    world = generate(sources.n_images, seed=seed, defect_share=share, kind=sources.world)
    if expected is not None:
        require_same(expected, world.retrieval_set)  # before another world is drawn over the project's own
    write_world(world, project / WORLD_FOLDER, progress)
    return world.retrieval_set


def _one(paths: Sequence[Path], what: str, example: str) -> Path:
    if len(paths) != 1:
        raise UsageError(f"{len(paths) or 'no'} files were given, but this needs one, {what}; give {example}")
    return paths[0]


EXAMPLES = 3
_WIDTH = 48


def overview(data: RetrievalSet, checked: Checked | None = None) -> tuple[Table, Table]:
    """(counts, examples from the start, the middle and the end); with what a check of the files found."""
    if data.form.left_part is PartKind.TEXT:
        return _of_texts(data)
    form = data.form
    (left, right), (lefts, rights) = form.sides, form.nouns
    of_image = Counter(caption.image_external_id for caption in data.captions)
    same = Counter((caption.image_external_id, caption.text) for caption in data.captions)
    least, most = min(of_image.values()), max(of_image.values())
    rows: list[tuple[str, object]] = [
        (lefts, len(data.images)),
        ("with a file", sum(image.file is not None for image in data.images)),
        ("with an address alone", sum(image.file is None and image.url is not None for image in data.images)),
        (rights, len(data.captions)),
        (f"{rights} of {article(left)} {left}", least if least == most else f"{least}–{most}"),
        (f"{lefts} without a {right}", len(data.images) - len(of_image)),
        (f"{rights} that repeat one of their {left}", len(data.captions) - len(same)),
        (f"characters of the longest {right}", max(len(caption.text) for caption in data.captions)),
    ]
    if form.composed:
        references = {query.reference for query in data.captions}
        rows += [("images that are references", len(references)), ("further positives", len(data.positives))]
    if checked is not None:
        media, faults = "pictures" if form.left_part is PartKind.IMAGE else lefts, checked.faults
        rows += [
            (f"{media} missing", faults["missing"]),
            (f"{media} unreadable", faults["unreadable"]),
            (f"{media} that another {left} has too", faults["repeated"]),
            *([("pictures animated", faults["animated"])] if form.left_part is PartKind.IMAGE else []),
            *([("sounds that are silent", faults["silent"])] if form.left_part is PartKind.AUDIO else []),
            ("addresses that nobody opened", checked.unseen),
        ]
    captions = data.captions
    files = {image.external_id: image.file or image.url or "–" for image in data.images}
    examples = tuple(
        (
            _short(captions[place].image_external_id),
            _tail(files[captions[place].image_external_id]),
            _short(captions[place].external_id),
            _short(captions[place].text),
        )
        for place in _places(len(captions))
    )
    return (
        Table("what was read", ("", "count"), tuple(rows)),
        Table(
            "examples",
            (left, "picture" if form.left_part is PartKind.IMAGE else "file", right, "text"),
            examples,
        ),
    )


def _of_texts(data: RetrievalSet) -> tuple[Table, Table]:
    """The same of documents and queries."""
    text_of = {document.external_id: " ".join(document.texts) for document in data.images}
    originals = [
        *((query.image_external_id, query.external_id) for query in data.captions),
        *data.positives,
    ]
    of_query = Counter(query for _, query in originals)
    least, most = min(of_query.values()), max(of_query.values())
    rows = (
        ("documents", len(data.images)),
        ("documents with a title", sum(len(document.texts) > 1 for document in data.images)),
        ("queries", len(data.captions)),
        ("original positives", len(originals)),
        ("positives of a query", least if least == most else f"{least}–{most}"),
        ("documents without a query", len(data.images) - len({document for document, _ in originals})),
        ("documents that repeat another's text", len(data.images) - len(set(text_of.values()))),
        ("characters of the longest document", max(map(len, text_of.values()))),
        ("characters of the longest query", max(len(query.text) for query in data.captions)),
    )
    examples = tuple(
        (
            _short(query.external_id),
            _short(query.text),
            _short(query.image_external_id),
            _short(text_of[query.image_external_id]),
        )
        for query in (data.captions[place] for place in _places(len(data.captions)))
    )
    return (
        Table("what was read", ("", "count"), rows),
        Table("examples", ("query", "text", "document", "text of the document"), examples),
    )


def article(noun: str) -> str:
    """``a`` or ``an``."""
    return "an" if noun[0] in "aeiou" else "a"


def _places(count: int) -> list[int]:
    """Places of the start, the middle and the end."""
    return list(dict.fromkeys(round(place * (count - 1) / (EXAMPLES - 1)) for place in range(EXAMPLES)))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _tail(file: str) -> str:
    return file if len(file) <= _WIDTH else "…" + file[1 - _WIDTH :]
