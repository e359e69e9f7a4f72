"""The JSON and CSV files of a release, as bytes."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mitl.judgements.aggregation import counts_for_pair
from mitl.positives.ids import ReleaseIds
from mitl.positives.pseudonyms import shown_judgements
from mitl.positives.release_input import ReleaseInput
from mitl.records import Pair, PairRole, Proposal

OFFICIAL_COLUMNS = ("model", "ranking", "score", "cid", "iid", "annotation", "shortcoming", "shortcoming2")
CONFLICT_COLUMNS = (
    "image_id",
    "caption_id",
    "label",
    "n_judgements",
    "cxc_score",
    "original",
    "decided_by",
    "kept",
)


def json_bytes(value: object) -> bytes:
    """Readable JSON with sorted keys and a final newline."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def positives_json(listed: Mapping[int, Sequence[int]], queries: ReleaseIds, items: ReleaseIds) -> bytes:
    """``{query: [items]}`` with integers, the queries in id order, in the layout of the official JSONs."""
    numbered = {
        str(queries.number[query]): [items.number[item] for item in found]
        for query, found in sorted(listed.items())
    }
    return (json.dumps(numbered, separators=(",", ":")) + "\n").encode()


def official_csv(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> bytes:
    """The usable judgements in the official layout: one row per judgement, proposing annotator and direction.

    Ranks start at 1, scores are the annotator's similarities, answers are 1 (yes) to 4 (no); several
    shortcomings or concepts are joined by ``|``. Golds and repeats are left out.
    """
    proposals: dict[Pair, list[Proposal]] = defaultdict(list)
    for proposal in data.proposals:
        proposals[proposal.pair].append(proposal)
    rows: list[Sequence[object]] = []
    for _, judgement in shown_judgements(data.judgements, data.salt):
        if not counts_for_pair(judgement) or judgement.role is PairRole.REPEAT:
            continue
        assert judgement.label is not None
        for proposal in sorted(proposals[judgement.pair], key=_proposal_place):
            rows.append(
                (
                    proposal.annotator,
                    proposal.rank,
                    np.float32(proposal.similarity),
                    captions.number[judgement.pair.caption_id],
                    images.number[judgement.pair.image_id],
                    judgement.label.code,
                    "|".join(str(shortcoming.code) for shortcoming in judgement.shortcomings),
                    "|".join(str(concept.code) for concept in judgement.concepts),
                )
            )
    return _csv_bytes(OFFICIAL_COLUMNS, rows)


def conflicts_csv(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> bytes:
    """Every pair on which people, CxC and the original annotation disagree, and what became of it."""
    rows = [
        (
            images.shown[conflict.pair.image_id],
            captions.shown[conflict.pair.caption_id],
            conflict.label.value if conflict.label else "",
            conflict.n_judgements,
            "" if conflict.cxc_score is None else conflict.cxc_score,
            _truth(conflict.original),
            conflict.decided_by.value,
            _truth(conflict.kept),
        )
        for conflict in sorted(data.merged.conflicts, key=lambda conflict: conflict.pair)
    ]
    return _csv_bytes(CONFLICT_COLUMNS, rows)


def _proposal_place(proposal: Proposal) -> tuple[str, str, int, float]:
    return proposal.annotator, proposal.direction.value, proposal.rank, proposal.similarity


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return sink.getvalue().encode()
