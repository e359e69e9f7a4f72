"""The images and captions that are searched outside a project."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.errors import MetricError
from mitl.records import Direction
from mitl.stages.evaluating.models.files import RankingModel, RawModel
from mitl.stages.evaluating.models.sides import Side, Sides, strange_ids_hint
from mitl.stages.evaluating.sets import ByQuery, official_by_query


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
