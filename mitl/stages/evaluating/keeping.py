"""The latest scores of a project, kept for its report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCORES_FILE = "evaluation/scores.json"
"""Where the latest scores lie, within the runs folder."""

Scores = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]


def keep_scores(
    runs: Path,
    scores: Scores,
    intervals: Scores,
    *,
    of_all: bool,
    environments: Mapping[str, str] | None = None,
) -> bool:
    """Keep the scores of these sets beside those of others; returns whether anything changed.

    The file holds positives → model → direction → metric → the value, or its ``value``, ``low`` and ``high``. Beside
    the directions of a model stands ``environment``, where the positives come of a release that names its own.

    Args:
        scores: positives → model → direction → metric → value.
        intervals: the same with [low, high].
        of_all: whether all of the project's annotators were scored; where not, what is kept of the others stays.
        environments: positives → the environment whose answers they hold, ``sandbox`` or ``live``.
    """
    known = environments or {}
    path = runs / SCORES_FILE
    before = path.read_text(encoding="utf-8") if path.exists() else "{}"
    kept: dict[str, dict[str, Any]] = json.loads(before)
    for positives, by_model in scores.items():
        new = {
            model: {
                direction: _with_ends(values, intervals.get(positives, {}).get(model, {}).get(direction, {}))
                for direction, values in by_direction.items()
            }
            | ({"environment": known[positives]} if positives in known else {})
            for model, by_direction in by_model.items()
        }
        kept[positives] = new if of_all else {**kept.get(positives, {}), **new}
    text = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    if before == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    return True


def _with_ends(values: Mapping[str, Any], ends: Mapping[str, Any]) -> dict[str, Any]:
    """Metric → value, or → value, low and high where there is an interval."""
    return {
        metric: {"value": value, "low": ends[metric][0], "high": ends[metric][1]} if metric in ends else value
        for metric, value in values.items()
    }
