"""Proposing with networks that need no weights, for processes that die or run side by side."""

from __future__ import annotations

from encoding_kit import build

from mitl.records import StageResult
from mitl.retrieval import encodings, pair_scores
from mitl.settings import Settings
from mitl.stages.proposing import ranking
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice
from mitl.stages.proposing.propose import propose as propose_stage

NAMES = ("hashing", "pairing")


def propose(settings: Settings) -> StageResult:
    """Five images and six captions search, in chunks and units of a few."""
    ranking.registry.build = build
    encodings.CHUNK_ITEMS.update(image=5, caption=20)
    pair_scores.FIRST_UNIT = pair_scores._LARGEST_UNIT = 60
    return propose_stage(
        settings,
        ProposeRequest(annotators=NAMES, top_k=3, depth=6, images=QueryChoice(5), captions=QueryChoice(6)),
    )
