"""The Parquet tables of a release, as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mitl.judgements.aggregators import Posterior
from mitl.positives.ids import ReleaseIds
from mitl.positives.judgement_columns import UNMEASURED, UNWRITTEN, JudgementColumns
from mitl.positives.merge_columns import UNANSWERED, Evidence
from mitl.positives.pseudonyms import shown_judgements
from mitl.positives.release_input import ReleaseInput
from mitl.proposals.packed import Ints, unpack_ids
from mitl.records import Concept, IdKind, Label, Outcome, PositiveSource, Shortcoming

_TEXTS = pa.list_(pa.string())


def positives_table(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """One row per positive, in order of the pairs, with what speaks for it."""
    known, rows = data.merged.evidence, np.flatnonzero(data.merged.kept)
    speaks = (data.merged.verified, data.merged.rated, known.original)
    mask = sum(one[rows].astype(np.int64) << place for place, one in enumerate(speaks))
    return pa.table(
        {
            **_pair_columns(data, known.pairs[rows], images, captions),
            "label": _labels(np.where(data.merged.verified[rows], known.label[rows], UNANSWERED)),
            "sources": _by_bits([source.value for source in PositiveSource]).take(pa.array(mask)),
            "annotators": _annotators(data, known.pairs[rows]),
            "n_judgements": pa.array(known.n_judgements[rows].astype(np.int16)),
            "probability": _probability(known, rows),
        }
    )


def negatives_table(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """One row per pair that people called no match, in order of the pairs."""
    known, rows = data.merged.evidence, np.flatnonzero(data.merged.negative)
    return pa.table(
        {
            **_pair_columns(data, known.pairs[rows], images, captions),
            "label": _labels(known.label[rows]),
            "annotators": _annotators(data, known.pairs[rows]),
            "n_judgements": pa.array(known.n_judgements[rows].astype(np.int16)),
            "probability": _probability(known, rows),
        }
    )


def posteriors_table(
    data: ReleaseInput, posterior: Posterior, images: ReleaseIds, captions: ReleaseIds
) -> pa.Table:
    """One row per pair with a usable answer, in order of the pairs: what a fitted aggregator holds possible."""
    pairs = data.merged.evidence.pairs[data.merged.evidence.answered]
    levels = {label.value: pa.array(posterior.level[:, place]) for place, label in enumerate(Label)}
    match = {"match": posterior.match, "match_low": posterior.low, "match_high": posterior.high}
    return pa.table(
        {
            **_pair_columns(data, pairs, images, captions),
            **levels,
            **{name: pa.array(column) for name, column in match.items() if column is not None},
        }
    )


def judgements_table(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """One row per answer on a candidate, by pair and then by pseudonym, so that the order tells nothing.

    Gold controls are left out: they check workers and would give the keys of later rounds away. Free text is there
    where the input holds it.
    """
    shown = shown_judgements(data.judgements, data.salt)
    return pa.table(
        {
            **_pair_columns(data, shown.pairs, images, captions),
            "worker": pa.array(shown.workers, pa.string()).take(pa.array(shown.worker)),
            "label": _labels(shown.label),
            "outcome": pa.array([outcome.value for outcome in Outcome]).take(pa.array(shown.outcome)),
            "shortcomings": _by_bits([value.value for value in Shortcoming]).take(
                pa.array(shown.shortcomings)
            ),
            "concepts": _by_bits([value.value for value in Concept]).take(pa.array(shown.concepts)),
            "active_ms": pa.array(shown.active_ms, mask=shown.active_ms == UNMEASURED),
            "usable": pa.array(shown.usable),
            **_text(shown),
        }
    )


def ids_table(images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """Which string id each integer of the JSONs stands for: kind (image or caption), number, external_id."""
    rows = [
        {"kind": kind, "number": ids.number[surrogate], "external_id": ids.shown[surrogate]}
        for kind, ids in (("image", images), ("caption", captions))
        for surrogate in sorted(ids.number)
    ]
    return _table(rows, {"kind": pa.string(), "number": pa.int64(), "external_id": pa.string()})


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as one Parquet file; the same table gives the same bytes under one pyarrow."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=1 << 17)
    return bytes(sink.getvalue().to_pybytes())


def _pair_columns(
    data: ReleaseInput, pairs: Ints, images: ReleaseIds, captions: ReleaseIds
) -> dict[str, pa.Array]:
    kind = pa.int64() if data.id_kind is IdKind.INTEGER else pa.string()
    shown = zip(("image_id", "caption_id"), (images, captions), unpack_ids(pairs), strict=True)
    return {name: _shown(ids.shown, kind).take(pa.array(surrogates)) for name, ids, surrogates in shown}


def _shown(shown: Mapping[int, int | str], kind: pa.DataType) -> pa.Array:
    """What each surrogate id is called, at its place."""
    return pa.array([shown.get(place) for place in range(max(shown, default=-1) + 1)], kind)


def _labels(labels: NDArray[np.int8]) -> pa.Array:
    names = pa.array([label.value for label in Label])
    return names.take(pa.array(labels, mask=labels == UNANSWERED))


def _probability(known: Evidence, rows: NDArray[np.int64]) -> pa.Array:
    return pa.array(known.probability[rows].astype(np.float32), mask=known.n_judgements[rows] == 0)


def _annotators(data: ReleaseInput, pairs: Ints) -> pa.Array:
    offsets, codes = data.proposals.finders(pairs)
    names = pa.array(data.proposals.annotators, pa.string()).take(pa.array(codes))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), names)


def _text(shown: JudgementColumns) -> dict[str, pa.Array]:
    if shown.text is None:
        return {}
    codes = pa.array(shown.text, mask=shown.text == UNWRITTEN)
    return {"text": pa.array(shown.texts, pa.string()).take(codes)}


def _by_bits(values: Sequence[str]) -> pa.Array:
    """At the place of each set of bits, the values whose bits are set."""
    every = [[v for place, v in enumerate(values) if mask >> place & 1] for mask in range(1 << len(values))]
    return pa.array(every, _TEXTS)


def _table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, pa.DataType]) -> pa.Table:
    schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    return pa.Table.from_pylist(list(rows), schema=schema)
