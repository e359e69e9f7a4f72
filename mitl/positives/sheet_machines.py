"""The datasheet's account of the machine annotators and their queries."""

from __future__ import annotations

from collections.abc import Mapping

from mitl.positives.markdown import listed, plain, table
from mitl.positives.origins import Origins, ProposalRun, QueryDraw
from mitl.positives.summary import Summary
from mitl.records import AnnotatorKind, Direction, several

KINDS: Mapping[AnnotatorKind, str] = {
    AnnotatorKind.INNER_PRODUCT: "one vector an item, compared by inner product",
    AnnotatorKind.MULTI_VECTOR: "several vectors an item",
    AnnotatorKind.PROBABILITY: "distributions, compared by match probability",
    AnnotatorKind.PAIRWISE: "scores each pair by itself",
    AnnotatorKind.RANKING: "rankings that were read from files",
}
"""How each kind compares, in words."""
_SIDES = {
    Direction.I2T: ("image query", "image queries"),
    Direction.T2I: ("caption query", "caption queries"),
}


def proposals(origins: Origins, summary: Summary) -> str:
    """Who proposed pairs, for which queries."""
    if not summary.proposed_by:
        return "No machine annotator proposed any of these pairs."
    kinds = origins.kinds
    rows = [
        (plain(name), KINDS[kinds[name]] if name in kinds else "–", f"{count:,}")
        for name, count in summary.proposed_by.items()
    ]
    if origins.past_work and not origins.runs:
        told = "The files of past work say which machine annotator proposed which pair, and at which rank."
    else:
        told = (
            "Each machine annotator ranked the gallery for each sampled query; the first ranks were proposed. "
            "Original pairs among them were asked like any other."
        )
    parts = [
        told,
        table(("machine annotator", "how it compares", "pairs proposed"), rows),
    ]
    if origins.runs:
        parts.append("\n".join(f"- {_run(run)}" for run in origins.runs))
    return "\n\n".join(parts)


def _run(run: ProposalRun) -> str:
    asked = listed([_draw(draw) for draw in run.draws]) or "no queries"
    return (
        f"{listed([plain(name) for name in run.annotators])}: {asked}; the first {run.top_k} ranks of each were "
        f"proposed, rankings were kept to rank {run.depth}."
    )


def _draw(draw: QueryDraw) -> str:
    noun = several(draw.queries, *_SIDES[draw.direction])
    items = f"{draw.items:,} {'images' if draw.direction is Direction.I2T else 'captions'}"
    if draw.queries >= draw.items:
        return f"{noun} (all there are)"
    if draw.seed is None:
        return f"{noun} of {items}, chosen by the makers (a list of ids, or a draw with another seed)"
    return f"{noun} drawn at random from {items} without replacement, seed {draw.seed}"
