"""The Parquet tables of a release, as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from mitl.positives.ids import ReleaseIds
from mitl.positives.pseudonyms import shown_judgements
from mitl.positives.release_input import ReleaseInput
from mitl.records import IdKind

_TEXTS = pa.list_(pa.string())


def positives_table(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """One row per positive, in order of the pairs, with what speaks for it."""
    rows = [
        {
            "image_id": images.shown[positive.pair.image_id],
            "caption_id": captions.shown[positive.pair.caption_id],
            "label": positive.label.value if positive.label else None,
            "sources": [source.value for source in positive.sources],
            "annotators": list(positive.annotators),
            "n_judgements": positive.n_judgements,
            "probability": positive.probability,
        }
        for positive in sorted(data.merged.positives, key=lambda positive: positive.pair)
    ]
    return _table(
        rows,
        {
            **_pair_columns(data.id_kind),
            "label": pa.string(),
            "sources": _TEXTS,
            "annotators": _TEXTS,
            "n_judgements": pa.int16(),
            "probability": pa.float32(),
        },
    )


def judgements_table(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """One row per answer on a candidate, by pair and then by pseudonym, so that the order tells nothing.

    Gold controls are left out: they check workers and would give the keys of later rounds away. So is the
    free text of rationales, which may hold anything.
    """
    rows = [
        {
            "image_id": images.shown[judgement.pair.image_id],
            "caption_id": captions.shown[judgement.pair.caption_id],
            "worker": worker,
            "label": judgement.label.value if judgement.label else None,
            "outcome": judgement.outcome.value,
            "shortcomings": [shortcoming.value for shortcoming in judgement.shortcomings],
            "concepts": [concept.value for concept in judgement.concepts],
            "active_ms": judgement.active_ms,
            "usable": judgement.usable,
        }
        for worker, judgement in shown_judgements(data.judgements, data.salt)
    ]
    return _table(
        rows,
        {
            **_pair_columns(data.id_kind),
            "worker": pa.string(),
            "label": pa.string(),
            "outcome": pa.string(),
            "shortcomings": _TEXTS,
            "concepts": _TEXTS,
            "active_ms": pa.int64(),
            "usable": pa.bool_(),
        },
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


def _pair_columns(kind: IdKind) -> dict[str, pa.DataType]:
    ids = pa.int64() if kind is IdKind.INTEGER else pa.string()
    return {"image_id": ids, "caption_id": ids}


def _table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, pa.DataType]) -> pa.Table:
    schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    return pa.Table.from_pylist(list(rows), schema=schema)
