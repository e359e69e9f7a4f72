"""Which images and captions are searched outside a project."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.datasets.ratings import choose_split, is_coco_named
from mitl.errors import MetricError
from mitl.records import Direction
from mitl.stages.evaluating.model_files import RankingModel, RawModel
from mitl.stages.evaluating.models import BOTH, ModelSide, Sides, strange_ids_hint
from mitl.stages.evaluating.positive_sets import ByQuery, official_by_query
from mitl.stages.evaluating.request import EvaluationRequest


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
        return Sides(
            ModelSide.of("image", originals[Direction.I2T]), ModelSide.of("caption", originals[Direction.T2I])
        )
    whole = [model for model in raw if not isinstance(model, RankingModel)]
    if whole:
        held = {
            side: next((model.held(side) for model in whole if side in model.sides), ())
            for side in sorted(BOTH)
        }
        return Sides(ModelSide.of("image", held["image"]), ModelSide.of("caption", held["caption"]))
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
        sides.append(ModelSide.of(modality, named))
    images, captions = sides
    return Sides(images, captions)
