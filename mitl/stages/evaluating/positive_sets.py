"""Sets of positives that models are compared by: official ones, COCO 1K's folds, a release's and its audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from mitl.audits.evidence import answered, confirmed, refused
from mitl.core.arrays import Flags, Floats, unpack_ids
from mitl.datasets.cxc import choose_split, is_coco_named
from mitl.datasets.official import OfficialSet
from mitl.errors import MetricError, UsageError
from mitl.metrics.official import Fold, split_folds
from mitl.metrics.partial_labels import CorrectedLabels, Rates
from mitl.metrics.positives import Ids, Positives, locate
from mitl.positives.audit_files import ReleasedAudit, read_audit
from mitl.positives.folders import MANIFEST, checked_table, read_manifest
from mitl.positives.loading import official_positives
from mitl.records import Direction
from mitl.stages.evaluating.model_files import RankingModel, RawModel
from mitl.stages.evaluating.models import ModelSide, Sides, strange_ids_hint
from mitl.stages.evaluating.request import EvaluationRequest

OFFICIAL = ("original", "cxc", "eccv")
FOLDS = "original-1k"
"""The original positives in the five folds of 1,000 images and 5,000 captions."""
EVERY = "all"
OFFICIAL_PREFIX = "official-"
OFFICIAL_CHOICES = ("original", FOLDS, "cxc", "eccv", EVERY)

ByQuery = Mapping[Direction, Mapping[str, Sequence[str]]]
"""Direction → query id → ids of its positives."""


def official_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """The official sets that ``--official`` asks for, each once.

    Raises:
        UsageError: there is no such set.
    """
    for name in wanted:
        if name not in OFFICIAL_CHOICES:
            raise UsageError(
                f"no official set called {name!r}; known: {', '.join([*OFFICIAL, FOLDS, EVERY])}"
            )
    return OFFICIAL_CHOICES[:-1] if EVERY in wanted else tuple(dict.fromkeys(wanted))


def environment_of(folder: Path) -> str | None:
    """The environment whose answers a release holds; None where it does not say."""
    if not (folder / MANIFEST).is_file():
        return None
    named = read_manifest(folder).get("environment")
    return named if isinstance(named, str) else None


def official_by_query(name: str) -> ByQuery:
    """The positives of an official set; DatasetError where the package is not installed."""
    return official_positives(cast(OfficialSet, name)).by_query


def located(
    name: str, by_query: ByQuery, sides: Sides, *, inside: bool = False
) -> dict[Direction, Positives]:
    """The set in the sides' numbers; items that the gallery lacks still count in R, as in the official scores.

    A query without positives is none of the set's.

    Args:
        inside: leave out the queries that the sides lack.

    Raises:
        MetricError: the sides lack a query.
    """
    positives = {}
    for direction in Direction:
        queries = sides.queries(direction).number_of
        table = {query: items for query, items in by_query.get(direction, {}).items() if items}
        if inside:
            table = {query: items for query, items in table.items() if query in queries}
        _refuse_missing(name, table, sides.queries(direction))
        positives[direction] = locate(table, queries, sides.gallery(direction).number_of).positives
    return positives


def beyond_gallery(name: str, positives: Mapping[Direction, Positives], sides: Sides) -> str:
    """A word on positives that the gallery lacks, as where a model brings the items that search alone; else empty."""
    ids = {direction: table.item_ids for direction, table in positives.items()}
    outside = sum(int((~np.isin(ids[way], sides.gallery(way).numbers)).sum()) for way in ids)
    if not outside:
        return ""
    return (
        f"{outside:,} of the {sum(map(len, ids.values())):,} positives that {name} lists are not among what is "
        "searched: no model can find them, and scores are those of this smaller gallery; give the model every item"
    )


def _refuse_missing(name: str, table: Mapping[str, Sequence[str]], side: ModelSide) -> None:
    missing = [query for query in table if query not in side.number_of]
    if missing:
        raise MetricError(
            f"{len(missing):,} of the {len(table):,} {side.plural} that {name} lists as queries are not among the "
            f"{len(side):,} searched; first: {missing[0]!r}{strange_ids_hint(list(table), side.ids)}; give the model "
            "all of them"
        )


def coco_folds(sides: Sides) -> Mapping[Direction, tuple[Fold, ...]] | None:
    """The five folds in the sides' numbers; None where an official item is missing."""
    from mitl.datasets.official import coco_test_ids

    captions = coco_test_ids()
    originals = official_by_query("original")
    if not (
        set(captions) <= set(sides.captions.ids) and set(originals[Direction.I2T]) <= set(sides.images.ids)
    ):
        return None
    positives = located(FOLDS, originals, sides)
    numbers = np.array([sides.captions.number_of[caption_id] for caption_id in captions], np.int64)
    i2t, t2i = split_folds(numbers, positives[Direction.T2I], positives[Direction.I2T])
    return {Direction.I2T: i2t, Direction.T2I: t2i}


def is_official_split(request: EvaluationRequest) -> bool:
    """Whether COCO's test split is searched: an official set is asked for, or ratings under its names."""
    against = request.against
    if against.official or against.cxc is None:
        return bool(against.official)
    split = choose_split(against.cxc, against.split)
    return split == "test" and is_coco_named(against.cxc, split)


def searched(raw: Sequence[RawModel], release: ByQuery | None, *, whole_split: bool) -> Sides:
    """The official test split, else what the first model with embeddings or similarities of a side holds, else what is
    named.

    Raises:
        MetricError: rankings name no image, or no caption, of the release.
    """
    if whole_split:
        originals = official_by_query("original")
        return Sides.named(originals[Direction.I2T], originals[Direction.T2I])
    whole = [model for model in raw if not isinstance(model, RankingModel)]
    if whole:
        return Sides.named(
            *(
                next((model.held(side) for model in whole if side in model.sides), ())
                for side in ("image", "caption")
            )
        )
    return _union(raw, release or {})


def _union(raw: Sequence[RawModel], release: ByQuery) -> Sides:
    """What rankings and a release name together: nothing else says what is searched."""
    listed: dict[str, set[str]] = {"image": set(), "caption": set()}
    for direction, table in release.items():
        queries, items = direction.ordered("image", "caption")
        listed[queries].update(table)
        listed[items].update(item for positives in table.values() for item in positives)
    named = {modality: set(ids) for modality, ids in listed.items()}
    for modality, ids in listed.items():
        for model in raw:
            held = model.held(modality)
            if ids and held and ids.isdisjoint(held):
                raise MetricError(
                    f"model {model.name!r} ranks none of the {len(ids):,} {modality}s of the release"
                    f"{strange_ids_hint(sorted(ids), held)}; rank them under the release's ids"
                )
            named[modality].update(held)
    return Sides.named(named["image"], named["caption"])


Pairs = tuple[Ids, Ids]
"""Numbers of images and of captions."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditedRelease:
    """What people judged, and the random sample of the pool."""

    queries: Mapping[Direction, Ids]
    """Those that the release lists: the audit's pool is these with all that they search."""
    held: Pairs
    """Positives of the release but for those that only the audit found."""
    refused: Pairs
    """Pairs that people called no match."""
    audited: Pairs
    matches: Flags
    """(n,) of the audited pairs: held ones that three answer, by two of these, others where they were confirmed."""
    reading: CorrectedLabels
    strata: NDArray[np.integer]
    inclusion: Floats
    rates: Rates | None
    """How often the audit's answers err; None where it holds too few to tell."""


def read_audited_release(folder: Path, by_query: ByQuery, sides: Sides) -> AuditedRelease:
    """The release's audit and what it was held against.

    Raises:
        MetricError: the release has no audit, or the models lack an item of it.
        ReleaseError: a file is missing, changed or malformed.
    """
    manifest = read_manifest(folder)
    audit = read_audit(folder, manifest)
    if audit is None:
        raise MetricError(
            f"the release {str(folder)!r} has no audit, so what its holes hide cannot be estimated; draw one with "
            "`mitl audit draw`, have all of it answered and build the release again"
        )
    rows = audit.audited
    held, thrice = rows["held"].to_numpy(), rows["recheck"].to_numpy()
    # What entered the release after the draw may have a lone no, and two of three is no rule for it.
    by_two = held & thrice
    matches = np.where(by_two, ~refused(rows), confirmed(rows))
    rates = Rates.measured(answered(rows)[1], thrice, held)
    negatives = checked_table(folder, manifest, "negatives.parquet", ["image_id", "caption_id"])
    return AuditedRelease(
        queries={
            direction: np.unique(_numbers(sides.queries(direction), list(by_query.get(direction, {}))))
            for direction in Direction
        },
        held=_released(audit, audit.held["pair"].to_numpy(), sides),
        refused=_pairs(sides, *(column.to_pylist() for column in negatives.columns)),
        audited=_released(audit, rows["pair"].to_numpy(), sides),
        matches=matches,
        reading=CorrectedLabels.of(matches, by_two, rates),
        strata=rows["stratum"].to_numpy(),
        inclusion=rows["inclusion"].to_numpy(),
        rates=rates,
    )


def _released(audit: ReleasedAudit, packed: Ids, sides: Sides) -> Pairs:
    images, captions = unpack_ids(packed)
    return _pairs(sides, audit.image_ids[images].tolist(), audit.caption_ids[captions].tolist())


def _pairs(sides: Sides, images: Sequence[object], captions: Sequence[object]) -> Pairs:
    return _numbers(sides.images, images), _numbers(sides.captions, captions)


def _numbers(side: ModelSide, ids: Sequence[object]) -> Ids:
    missing = [str(name) for name in ids if str(name) not in side.number_of]
    if missing:
        raise MetricError(
            f"{len(missing):,} {side.plural} of the release's pool are not among the {len(side):,} searched, first "
            f"{missing[0]!r}; a fair comparison takes models of the whole gallery: embeddings, similarities, or "
            "rankings beside one of these"
        )
    return np.array([side.number_of[str(name)] for name in ids], np.int64)
