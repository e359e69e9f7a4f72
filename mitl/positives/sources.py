"""Sets of positives by the name that a user gives them: official ones, a release, a pair of JSONs, CxC's CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from mitl.datasets import cxc
from mitl.datasets.assembling import id_kind
from mitl.datasets.objects import read_image_objects
from mitl.datasets.official import OfficialSet, by_query
from mitl.errors import ReleaseError
from mitl.metrics.plausible import listed_matches, matches_by_objects
from mitl.positives.folders import MANIFEST, checked_table, dataset_of, read_manifest
from mitl.positives.loading import (
    ReleasePositives,
    official_positives,
    read_positives_json,
    read_release,
    sides_of,
)
from mitl.records import Direction, IdKind, PositiveSource
from mitl.records.forms import IMAGES, SET_FORMS, SetForm

ByQuery = Mapping[str, Iterable[str]]
"""Query id → ids of its positives, by external id."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What people looked at, as (image id, caption id)."""

    judged: frozenset[tuple[str, str]]
    """Pairs with a usable answer: h of the paper, over all queries."""
    positive: frozenset[tuple[str, str]]
    """Those of them that people called a match: t."""

    def items(self, direction: Direction, *, positive: bool) -> dict[str, set[str]]:
        """Query → items of the verified (or the judged) pairs."""
        found: dict[str, set[str]] = {}
        for image, caption in self.positive if positive else self.judged:
            query, item = direction.ordered(image, caption)
            found.setdefault(query, set()).add(item)
        return found


@dataclass(frozen=True, slots=True)
class Quality:
    """How a set of positives fares against verified pairs; shares from 0 to 1, means over queries."""

    precision: float | None
    """None where no query counts."""
    recall: float | None
    queries: int
    """Queries that count: those with a positive that people looked at."""
    dropped: int
    """Queries left out because people looked at none of the set's positives."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pairs of two sets on the same queries."""

    both: int
    only_first: int
    only_second: int


def quality(positives: ByQuery, verified: Verified, queries: Iterable[str], direction: Direction) -> Quality:
    """Precision and recall of a set of positives against verified pairs, averaged over queries.

    For a query with positives r in the set, looked-at items h and verified positives t, r' = r ∩ h;
    precision is |r' ∩ t| / |r'| and recall |r' ∩ t| / |t|. A query whose r' is empty is left out of both, since
    its precision is not defined (Chun et al., ECCV Caption, section 3.3 and its footnote 2). A query without any
    verified positive has no recall and counts for precision alone.
    """
    looked_at = verified.items(direction, positive=False)
    right = verified.items(direction, positive=True)
    precisions, recalls, dropped = [], [], 0
    for query in queries:
        known = set(positives.get(query, ())) & looked_at.get(query, set())
        if not known:
            dropped += 1
            continue
        matches = right.get(query, set())
        precisions.append(len(known & matches) / len(known))
        if matches:
            recalls.append(len(known & matches) / len(matches))
    return Quality(_mean(precisions), _mean(recalls), len(precisions), dropped)


def count(positives: ByQuery, queries: Iterable[str]) -> int:
    """Positives of these queries; an item named twice for a query counts once."""
    return sum(len(set(positives.get(query, ()))) for query in queries)


def overlap(first: ByQuery, second: ByQuery, queries: Iterable[str]) -> Overlap:
    """How many pairs of these queries both sets hold, and how many one of them alone."""
    both = only_first = only_second = 0
    for query in queries:
        one, other = set(first.get(query, ())), set(second.get(query, ()))
        both += len(one & other)
        only_first += len(one - other)
        only_second += len(other - one)
    return Overlap(both, only_first, only_second)


def disagreement(forward: ByQuery, backward: ByQuery) -> tuple[str, str] | None:
    """A pair (image, caption) that one direction holds and the other, though it lists its query, does not.

    A set may list some of the images and some of the captions as queries, so a pair is wanted in both directions
    only where both its sides are queries.
    """
    tables = [{query: set(items) for query, items in table.items()} for table in (forward, backward)]
    for direction in Direction:
        ahead, back = direction.ordered(*tables)
        for query, items in ahead.items():
            for item in sorted(items):
                if item in back and query not in back[item]:
                    return direction.ordered(query, item)
    return None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


OFFICIAL = ("official-original", "official-cxc", "official-eccv")
FORMS = (
    f"{', '.join(OFFICIAL)}, the folder of a release or of two JSONs, cxc:FILE, or plausible:FILE (or FOLDER)"
)
ImageOf = Callable[[], Mapping[str, str]]
"""Gives caption id → its own image's id."""


@dataclass(frozen=True, slots=True)
class PositiveSet:
    """A set of positives, with what people looked at where it says so."""

    name: str
    positives: ReleasePositives
    verified: Verified | None
    """None where it holds no judgements."""
    folder: Path | None = None
    """Of a release; None for other sets."""
    form: SetForm = IMAGES
    """What its sides are called."""
    dataset_sha256: str | None = None
    """Of its data set's ids and texts; None where it does not say it."""


def _image_of_official() -> Mapping[str, str]:
    """Of the captions of COCO's test split."""
    owners = official_positives("original").by_query[Direction.T2I]
    return {caption: images[0] for caption, images in owners.items()}


def read_set(name: str, image_of: ImageOf = _image_of_official) -> PositiveSet:
    """The set of this name.

    Args:
        name: an official set, the folder of a release, a folder that holds ``image_to_caption.json`` and
            ``caption_to_image.json``, ``cxc:`` and the path of CxC's ratings of images and captions, or
            ``plausible:`` and the path of a file of objects by image or of a folder of listed plausible matches.
        image_of: whose captions are whose, for objects by image.

    Raises:
        ReleaseError: there is nothing of this name, a file is missing or malformed, or the two directions disagree.
        DatasetError: an official set is not installed, or a file of CxC's, objects or matches is malformed.
    """
    if name in OFFICIAL:
        positives = official_positives(cast(OfficialSet, name.removeprefix("official-")))
        return PositiveSet(name, positives, None)
    kind, _, path = name.partition(":")
    file, folder = Path(path), Path(name)
    if kind == "cxc" and path:
        rated = cxc.positives(cxc.read_sits(file))
        ids = id_kind(id_ for pair in rated for id_ in pair)
        found = ReleasePositives.of(file.name, ids, by_query(rated))
        return PositiveSet(name, found, None, dataset_sha256=dataset_of(file.parent))
    if kind == "plausible" and path:
        known = (
            listed_matches(file)
            if file.is_dir()
            else matches_by_objects(read_image_objects(file), image_of())
        )
        return PositiveSet(name, ReleasePositives.of(file.name, IdKind.INTEGER, known), None)
    if not folder.is_dir():
        raise ReleaseError(f"there is no set of positives {name!r}; give {FORMS}")
    if (folder / MANIFEST).is_file():
        form = SET_FORMS[sides_of(read_manifest(folder))]
        positives = _agreeing(read_release(folder), folder)
        return PositiveSet(name, positives, verified_pairs(folder), folder, form, dataset_of(folder))
    return PositiveSet(name, _agreeing(read_positives_json(folder), folder), None)


def _agreeing(found: ReleasePositives, folder: Path) -> ReleasePositives:
    wrong = disagreement(found.by_query[Direction.I2T], found.by_query[Direction.T2I])
    if wrong is not None:
        image, caption = wrong
        raise ReleaseError(
            f"the two directions in {str(folder)!r} disagree: image {image} and caption {caption} match in one and "
            "not in the other, though both are queries; mend the JSONs, or build the release again"
        )
    return found


_PAIR = ("image_id", "caption_id")


def verified_pairs(folder: Path) -> Verified | None:
    """What people judged, from a release's tables; None where nobody judged anything.

    Of what an audit drew, the pairs that the release did not hold are among it, whether they were found or refused.

    Raises:
        ReleaseError: it is not a release, or a table is missing, changed or malformed.
    """
    manifest = read_manifest(folder)
    answers = checked_table(folder, manifest, "judgements.parquet", [*_PAIR, "label", "usable"])
    counted = answers.filter(pc.and_(answers["usable"], pc.is_valid(answers["label"])))
    if not counted.num_rows:
        return None
    positives = checked_table(folder, manifest, "positives.parquet", [*_PAIR, "sources"])
    by_people = {PositiveSource.JUDGEMENT, PositiveSource.AUDIT}
    judged = [not by_people.isdisjoint(sources or ()) for sources in positives["sources"].to_pylist()]
    right = _pairs(positives.filter(pa.array(judged, pa.bool_())))
    looked_at = _pairs(counted) | right
    if "audit.parquet" in cast("dict[str, object]", manifest["files"]):
        audit = checked_table(folder, manifest, "audit.parquet", [*_PAIR, "held"])
        looked_at |= _pairs(audit.filter(pc.invert(audit["held"])))
    return Verified(looked_at, right)


def _pairs(table: pa.Table) -> frozenset[tuple[str, str]]:
    columns = (table[name].cast(pa.string()).to_pylist() for name in _PAIR)
    return frozenset(zip(*columns, strict=True))


def read_pairs(folder: Path, name: str, *columns: str) -> list[tuple[tuple[str, str], dict[str, Any]]]:
    """(image id, caption id) and these columns of each row of a release's table, checked against its manifest."""
    table = checked_table(folder, read_manifest(folder), name, [*_PAIR, *columns])
    return [((str(row["image_id"]), str(row["caption_id"])), row) for row in table.to_pylist()]
