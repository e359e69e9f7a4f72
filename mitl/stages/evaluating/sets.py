"""The sets of positives that models are held against, in the numbers of the images and captions that are searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from mitl.datasets.official import OfficialSet
from mitl.errors import MetricError, UsageError
from mitl.metrics.positives import Ids, Positives, locate
from mitl.positives.folders import MANIFEST, read_manifest
from mitl.positives.loading import official_positives, read_positives_json, read_release
from mitl.records import Direction
from mitl.stages.evaluating.model_files import RankingModel, RawModel
from mitl.stages.evaluating.models import Side, Sides, strange_ids_hint
from mitl.stages.evaluating.project import Project

OFFICIAL = ("original", "cxc", "eccv")
FOLDS = "original-1k"
"""The original positives in the five folds of 1,000 images and 5,000 captions."""
EVERY = "all"
OFFICIAL_CHOICES = ("original", FOLDS, "cxc", "eccv", EVERY)

ByQuery = Mapping[Direction, Mapping[str, Sequence[str]]]
"""Direction → query id → ids of its positives."""


@dataclass(frozen=True, slots=True, eq=False)
class PositiveSet:
    """One set, with the queries that it lists."""

    name: str
    by_direction: Mapping[Direction, Positives]

    @property
    def empty(self) -> bool:
        """Whether it lists no query at all."""
        return not any(len(one) for one in self.by_direction.values())

    def deepest(self, direction: Direction) -> int:
        """The largest R."""
        found = self.by_direction[direction]
        return int(found.counts.max()) if len(found) else 0


def official_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """The official sets that ``--official`` asks for, each once.

    Raises:
        UsageError: there is no such set.
    """
    for name in wanted:
        if name not in OFFICIAL_CHOICES:
            known = ", ".join([*OFFICIAL, FOLDS, EVERY])
            raise UsageError(f"no official set called {name!r}; known: {known}")
    return OFFICIAL_CHOICES[:-1] if EVERY in wanted else tuple(dict.fromkeys(wanted))


def release_by_query(folder: Path) -> ByQuery:
    """The positives of a release, or of a folder that holds the two JSONs alone; ReleaseError where it is neither."""
    jsons = folder / "image_to_caption.json"
    if jsons.is_file() and not (folder / MANIFEST).is_file():
        return read_positives_json(folder).by_query
    return read_release(folder).by_query


def environment_of(folder: Path) -> str | None:
    """The environment whose answers a release holds; None where it does not say."""
    if not (folder / MANIFEST).is_file():
        return None
    named = read_manifest(folder).get("environment")
    return named if isinstance(named, str) else None


def official_by_query(name: str) -> ByQuery:
    """The positives of an official set; DatasetError where the package is not installed."""
    return official_positives(cast(OfficialSet, name)).by_query


def located(name: str, by_query: ByQuery, sides: Sides, *, inside: bool = False) -> PositiveSet:
    """The set in the sides' numbers; items that the gallery lacks still count in R, as in the official scores.

    Args:
        inside: leave out the queries that the sides lack.

    Raises:
        MetricError: the sides lack a query.
    """
    found = {}
    for direction in Direction:
        queries = sides.queries(direction).number_of
        table = by_query.get(direction, {})
        if inside:
            table = {query: items for query, items in table.items() if query in queries}
        _refuse_missing(name, table, sides.queries(direction))
        found[direction] = locate(table, queries, sides.gallery(direction).number_of).positives
    return PositiveSet(name, found)


def _refuse_missing(name: str, table: Mapping[str, Sequence[str]], side: Side) -> None:
    missing = [query for query in table if query not in side.number_of]
    if missing:
        raise MetricError(
            f"{len(missing):,} of the {len(table):,} {side.plural} that {name} lists as queries are not among the "
            f"{len(side):,} searched; first: {missing[0]!r}{strange_ids_hint(list(table), side.ids)}; give the model "
            "all of them"
        )


def searched(raw: Sequence[RawModel], release: ByQuery | None, *, whole_split: bool) -> Sides:
    """The official test split, else what the first model with embeddings or similarities holds, else what is named.

    Raises:
        MetricError: rankings name no image, or no caption, of the release.
    """
    if whole_split:
        originals = official_by_query("original")
        return Sides(Side.of("image", originals[Direction.I2T]), Side.of("caption", originals[Direction.T2I]))
    whole = [model for model in raw if not isinstance(model, RankingModel)]
    if whole:
        return Sides(Side.of("image", whole[0].held("image")), Side.of("caption", whole[0].held("caption")))
    return _union(raw, release or {})


def _union(raw: Sequence[RawModel], release: ByQuery) -> Sides:
    """What rankings and a release name together: nothing else says what is searched."""
    listed: dict[str, set[str]] = {"image": set(), "caption": set()}
    for direction, table in release.items():
        queries, items = ("image", "caption") if direction is Direction.I2T else ("caption", "image")
        listed[queries].update(table)
        listed[items].update(item for found in table.values() for item in found)
    sides = []
    for modality, ids in listed.items():
        named: set[str] = set(ids)
        for model in raw:
            held = model.held(modality)
            if ids and held and ids.isdisjoint(held):
                raise MetricError(
                    f"model {model.name!r} ranks none of the {len(ids):,} {modality}s of the release"
                    f"{strange_ids_hint(sorted(ids), held)}; rank them under the release's ids"
                )
            named.update(held)
        sides.append(Side.of(modality, named))
    return Sides(*sides)


def image_of(project: Project | None, sides: Sides) -> Ids:
    """(C,) the image's number of each caption of the sides, from the project or from the official test split.

    Raises:
        UsageError: there is no project, and a caption is none of the official ones.
    """
    if project is not None:
        return np.array([caption.image_id for caption in project.items.captions], np.int64)
    originals = official_by_query("original")[Direction.T2I]
    numbers = sides.images.number_of
    try:
        return np.array([numbers[originals[one][0]] for one in sides.captions.ids], np.int64)
    except KeyError as error:
        raise UsageError(
            f"whose caption {error.args[0]} is cannot be told outside a project; work in one, or score on COCO's test "
            "split"
        ) from error
