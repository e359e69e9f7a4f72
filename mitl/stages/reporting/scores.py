"""The latest scores of `mitl evaluate`, with their intervals where it wrote some."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mitl.analysis.report.inputs import EvaluationScore
from mitl.records import Direction
from mitl.settings import Settings
from mitl.stages.evaluating.figures import SCORES_FILE

SHOWN = ("R@1", "R@5", "R@10", "R-Precision", "mAP@R")
"""The metrics that the report has room for, in its order."""


def evaluation(settings: Settings, order: Sequence[str] = ()) -> tuple[EvaluationScore, ...]:
    """The scores by set of positives, annotator, direction and metric; empty where nothing was evaluated.

    Args:
        order: the annotators' order; others follow as the file has them.


    The file holds, for each set, annotator and direction, every metric's value, or its value, ``low`` and ``high``.
    """
    try:
        sets: Mapping[str, Any] = json.loads((settings.runs / SCORES_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    ways = {way.value for way in Direction}
    place = {name: number for number, name in enumerate(order)}
    return tuple(
        _score(annotator, positives, Direction(way), metric, values[metric])
        for positives, by_annotator in sets.items()
        for annotator, by_way in sorted(by_annotator.items(), key=lambda one: place.get(one[0], len(place)))
        for way, values in by_way.items()
        if way in ways
        for metric in SHOWN
        if values.get(metric) is not None
    )


def _score(annotator: str, positives: str, way: Direction, metric: str, found: Any) -> EvaluationScore:
    if isinstance(found, Mapping):
        value = found["value"] if "value" in found else found["estimate"]
        return EvaluationScore(annotator, positives, way, metric, value, found.get("low"), found.get("high"))
    return EvaluationScore(annotator, positives, way, metric, float(found))
