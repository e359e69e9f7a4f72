"""Sets of positives by the name that a user gives them: official ones, a release, a pair of JSONs, CxC's CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mitl.datasets import cxc
from mitl.datasets.objects import read_image_objects
from mitl.datasets.official import OfficialSet, by_query
from mitl.errors import ReleaseError
from mitl.metrics.plausible_matches import listed_matches, matches_by_objects
from mitl.positives.comparing import Verified, disagreement
from mitl.positives.folders import MANIFEST, read_checked, read_manifest
from mitl.positives.loading import ReleasePositives, official_positives, read_positives_json, read_release
from mitl.records import Direction, IdKind

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
        found = official_positives(cast(OfficialSet, name.removeprefix("official-")))
        return PositiveSet(name, found, None)
    kind, _, path = name.partition(":")
    if kind == "cxc" and path:
        return PositiveSet(name, _rated(Path(path)), None)
    if kind == "plausible" and path:
        return PositiveSet(name, _plausible(Path(path), image_of), None)
    folder = Path(name)
    if not folder.is_dir():
        raise ReleaseError(f"there is no set of positives {name!r}; give {FORMS}")
    if (folder / MANIFEST).is_file():
        return PositiveSet(name, _agreeing(read_release(folder), folder), _verified(folder), folder)
    return PositiveSet(name, _agreeing(read_positives_json(folder), folder), None)


def _rated(path: Path) -> ReleasePositives:
    pairs = by_query(cxc.positives(cxc.read_sits(path)))
    tables = {Direction.I2T: pairs.image_to_caption, Direction.T2I: pairs.caption_to_image}
    return ReleasePositives(path.name, IdKind.INTEGER, tables)


def _plausible(path: Path, image_of: ImageOf) -> ReleasePositives:
    known = (
        listed_matches(path) if path.is_dir() else matches_by_objects(read_image_objects(path), image_of())
    )
    tables = {Direction.I2T: known.image_to_caption, Direction.T2I: known.caption_to_image}
    return ReleasePositives(path.name, IdKind.INTEGER, tables)


def _agreeing(found: ReleasePositives, folder: Path) -> ReleasePositives:
    wrong = disagreement(found.by_query[Direction.I2T], found.by_query[Direction.T2I])
    if wrong is not None:
        image, caption = wrong
        raise ReleaseError(
            f"the two directions in {str(folder)!r} disagree: image {image} and caption {caption} match in one and "
            "not in the other, though both are queries; mend the JSONs, or build the release again"
        )
    return found


def _verified(folder: Path) -> Verified | None:
    """What people judged, from a release's tables; None where nobody judged anything."""
    manifest = read_manifest(folder)
    answers = _table(read_checked(folder, manifest, "judgements.parquet"))
    counted = answers.filter(pc.and_(answers["usable"], pc.is_valid(answers["label"])))
    if not counted.num_rows:
        return None
    positives = _table(read_checked(folder, manifest, "positives.parquet"))
    judged = [sources is not None and "judgement" in sources for sources in positives["sources"].to_pylist()]
    return Verified(_pairs(counted), _pairs(positives.filter(pa.array(judged, pa.bool_()))))


def _table(content: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(content))


def _pairs(table: pa.Table) -> frozenset[tuple[str, str]]:
    columns = (table[name].cast(pa.string()).to_pylist() for name in ("image_id", "caption_id"))
    return frozenset(zip(*columns, strict=True))


def read_table(folder: Path, name: str) -> list[dict[str, object]]:
    """The rows of one of a release's tables, checked against its manifest."""
    rows: list[dict[str, object]] = _table(read_checked(folder, read_manifest(folder), name)).to_pylist()
    return rows
