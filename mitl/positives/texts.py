"""The JSON and CSV files of a release, as bytes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mitl.core.packed import unpack_ids
from mitl.datasets.official import OFFICIAL_COLUMNS
from mitl.positives.ids import ReleaseIds, by_place
from mitl.positives.release_input import ReleaseInput
from mitl.proposals.columns import spans
from mitl.records import Concept, Label, PairRole, PositiveSource, Shortcoming
from mitl.records.frames import ROLES, counts

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

_ROWS_AT_ONCE = 1 << 19
"""Judgements that are written together; bounds the memory."""
_LEAST, _MOST = 1.001e-4, 1e6
"""Between them Arrow and Python write a number alike, unless it is whole."""


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


def official_csv(data: ReleaseInput, shown: pd.DataFrame, images: ReleaseIds, captions: ReleaseIds) -> bytes:
    """The usable judgements in the official layout: one row per judgement, proposing annotator and direction.

    Ranks start at 1, scores are the annotator's similarities, answers are 1 (yes) to 4 (no); several
    shortcomings or concepts are joined by ``|``. Golds and repeats are left out.

    Args:
        shown: what :func:`mitl.positives.pseudonyms.shown_judgements` gives.
    """
    listed = shown[counts(shown) & (shown["role"] != ROLES.index(PairRole.REPEAT))]
    found = data.proposals
    names = pa.array([_csv_bytes([[name]]).decode().strip() for name in found.annotators], pa.string())
    image_names, caption_names = by_place(images.number), by_place(captions.number)
    reasons = {"shortcomings": _codes(len(Shortcoming)), "concepts": _codes(len(Concept))}
    parts = [_csv_bytes([OFFICIAL_COLUMNS])]
    for first in range(0, len(listed), _ROWS_AT_ONCE):
        part = listed.iloc[first : first + _ROWS_AT_ONCE]
        pairs = part["pair"].to_numpy()
        starts, ends = (np.searchsorted(found.pairs, pairs, side=side) for side in ("left", "right"))
        rows, proposed = np.repeat(np.arange(len(part)), ends - starts), spans(starts, ends)
        image_ids, caption_ids = unpack_ids(pairs[rows])
        columns = (
            names.take(pa.array(found.annotator[proposed])),
            pa.array(found.rank[proposed]).cast(pa.string()),
            _decimals(found.similarity[proposed].astype(np.float32)),
            caption_names.take(pa.array(caption_ids)).cast(pa.string()),
            image_names.take(pa.array(image_ids)).cast(pa.string()),
            pa.array(part["label"].to_numpy()[rows] + 1).cast(pa.string()),
            *(texts.take(pa.array(part[name].to_numpy()[rows])) for name, texts in reasons.items()),
        )
        lines = pc.binary_join_element_wise(*columns, ",").to_pylist()
        parts.append("\n".join([*lines, ""]).encode())
    return b"".join(parts)


def conflicts_csv(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> bytes:
    """Every pair on which people, CxC and the original annotation disagree, and what became of it."""
    found = data.merged.pairs[data.merged.pairs["conflict"]]
    names = [label.value for label in Label] + [""]  # the last is for NONE
    image_ids, caption_ids = unpack_ids(found["pair"].to_numpy())
    columns = (
        map(images.shown.__getitem__, image_ids.tolist()),
        map(captions.shown.__getitem__, caption_ids.tolist()),
        map(names.__getitem__, found["label"].tolist()),
        found["n_judgements"].tolist(),
        ("" if math.isnan(score) else score for score in found["score"].tolist()),
        map(_truth, found["original"].tolist()),
        (
            (PositiveSource.JUDGEMENT if by_judgement else PositiveSource.CXC).value
            for by_judgement in found["by_judgement"].tolist()
        ),
        map(_truth, found["kept"].tolist()),
    )
    return _csv_bytes([CONFLICT_COLUMNS, *zip(*columns, strict=True)])


def _decimals(numbers: NDArray[np.float32]) -> pa.Array:
    """Each number by its shortest digits, as Python writes it; Arrow is quick and differs for the great and small."""
    size = np.abs(numbers)
    alike = (size > _LEAST) & (size < _MOST) & (numbers != np.trunc(numbers))
    texts = pa.array(numbers).cast(pa.string())
    return pc.replace_with_mask(texts, pa.array(~alike), pa.array(map(str, numbers[~alike]), pa.string()))


def _codes(values: int) -> pa.Array:
    """At the place of each set of bits, the official numbers of the values whose bits are set."""
    return pa.array(
        ["|".join(str(n + 1) for n in range(values) if mask >> n & 1) for mask in range(1 << values)]
    )


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _csv_bytes(rows: Iterable[Sequence[object]]) -> bytes:
    sink = io.StringIO(newline="")
    csv.writer(sink, lineterminator="\n").writerows(rows)
    return sink.getvalue().encode()
