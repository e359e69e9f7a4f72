"""The JSON and CSV files of a release, as bytes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mitl.positives.ids import ReleaseIds
from mitl.positives.pseudonyms import shown_judgements
from mitl.positives.release_input import ReleaseInput
from mitl.proposals.columns import spans
from mitl.proposals.packed import unpack_ids
from mitl.records import Concept, Label, PositiveSource, Shortcoming

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
    shown = shown_judgements(data.judgements, data.salt)
    shown = shown.take(shown.counting & ~shown.repeat)
    found = data.proposals
    starts, ends = (np.searchsorted(found.pairs, shown.pairs, side=side) for side in ("left", "right"))
    rows, proposed = np.repeat(np.arange(len(shown)), ends - starts), spans(starts, ends)
    image_ids, caption_ids = unpack_ids(shown.pairs[rows])
    columns = (
        map(found.annotators.__getitem__, found.annotator[proposed].tolist()),
        found.rank[proposed].tolist(),
        found.similarity[proposed].astype(np.float32),
        map(captions.number.__getitem__, caption_ids.tolist()),
        map(images.number.__getitem__, image_ids.tolist()),
        (shown.label[rows] + 1).tolist(),
        map(_codes(len(Shortcoming)).__getitem__, shown.shortcomings[rows].tolist()),
        map(_codes(len(Concept)).__getitem__, shown.concepts[rows].tolist()),
    )
    return _csv_bytes(OFFICIAL_COLUMNS, zip(*columns, strict=True))


def conflicts_csv(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> bytes:
    """Every pair on which people, CxC and the original annotation disagree, and what became of it."""
    merged, known = data.merged, data.merged.evidence
    found = np.flatnonzero(merged.conflict)
    names = [label.value for label in Label] + [""]  # the last is for UNANSWERED
    image_ids, caption_ids = unpack_ids(known.pairs[found])
    columns = (
        map(images.shown.__getitem__, image_ids.tolist()),
        map(captions.shown.__getitem__, caption_ids.tolist()),
        map(names.__getitem__, known.label[found].tolist()),
        known.n_judgements[found].tolist(),
        ("" if math.isnan(score) else score for score in known.score[found].tolist()),
        map(_truth, known.original[found].tolist()),
        (
            (PositiveSource.JUDGEMENT if by_judgement else PositiveSource.CXC).value
            for by_judgement in merged.by_judgement[found].tolist()
        ),
        map(_truth, merged.kept[found].tolist()),
    )
    return _csv_bytes(CONFLICT_COLUMNS, zip(*columns, strict=True))


def _codes(values: int) -> list[str]:
    """At the place of each set of bits, the official numbers of the values whose bits are set."""
    return ["|".join(str(n + 1) for n in range(values) if mask >> n & 1) for mask in range(1 << values)]


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return sink.getvalue().encode()
