"""The Parquet tables of a release, as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from mitl.core.packed import unpack_ids
from mitl.judgements.aggregators import Posterior
from mitl.positives.ids import ReleaseIds, by_place
from mitl.positives.release_input import ReleaseInput
from mitl.records import Concept, IdKind, Label, Outcome, PositiveSource, Shortcoming
from mitl.records.frames import NONE

_TEXTS = pa.list_(pa.string())


def positives_table(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """One row per positive, in order of the pairs, with what speaks for it."""
    kept = data.merged.pairs[data.merged.pairs["kept"]]
    speaks = (kept[name].to_numpy(np.int64) << n for n, name in enumerate(("verified", "rated", "original")))
    return pa.table(
        {
            **_pair_columns(data, kept, images, captions),
            "label": _labels(kept["label"].where(kept["verified"], NONE)),
            "sources": _by_bits([source.value for source in PositiveSource]).take(pa.array(sum(speaks))),
            **_answer_columns(data, kept),
        }
    )


def negatives_table(data: ReleaseInput, images: ReleaseIds, captions: ReleaseIds) -> pa.Table:
    """One row per pair that people called no match, in order of the pairs."""
    negative = data.merged.pairs[data.merged.pairs["negative"]]
    return pa.table(
        {
            **_pair_columns(data, negative, images, captions),
            "label": _labels(negative["label"]),
            **_answer_columns(data, negative),
        }
    )


def posteriors_table(
    data: ReleaseInput, posterior: Posterior, images: ReleaseIds, captions: ReleaseIds
) -> pa.Table:
    """One row per pair with a usable answer, in order of the pairs: what a fitted aggregator holds possible."""
    answered = data.merged.pairs[data.merged.pairs["label"] != NONE]
    levels = {label.value: pa.array(posterior.level[:, place]) for place, label in enumerate(Label)}
    match = {"match": posterior.match, "match_low": posterior.low, "match_high": posterior.high}
    return pa.table(
        {
            **_pair_columns(data, answered, images, captions),
            **levels,
            **{name: pa.array(column) for name, column in match.items() if column is not None},
        }
    )


def judgements_table(
    data: ReleaseInput, shown: pd.DataFrame, images: ReleaseIds, captions: ReleaseIds
) -> pa.Table:
    """One row per answer on a candidate, by pair and then by pseudonym, so that the order tells nothing.

    Gold controls are left out: they check workers and would give the keys of later rounds away. Free text is there
    where the input holds it.

    Args:
        shown: what :func:`mitl.positives.pseudonyms.shown_judgements` gives.
    """
    outcomes = pa.array([outcome.value for outcome in Outcome])
    active_ms = shown["active_ms"].to_numpy()
    return pa.table(
        {
            **_pair_columns(data, shown, images, captions),
            "worker": _strings(shown["worker"]),
            "label": _labels(shown["label"]),
            "outcome": outcomes.take(pa.array(shown["outcome"].to_numpy())),
            **{
                name: _by_bits([value.value for value in enum]).take(pa.array(shown[name].to_numpy()))
                for name, enum in (("shortcomings", Shortcoming), ("concepts", Concept))
            },
            "active_ms": pa.array(active_ms, mask=active_ms == NONE),
            "usable": pa.array(shown["usable"].to_numpy()),
            **({"text": _strings(shown["text"])} if "text" in shown else {}),
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
    data: ReleaseInput, rows: pd.DataFrame, images: ReleaseIds, captions: ReleaseIds
) -> dict[str, pa.Array]:
    kind = pa.int64() if data.id_kind is IdKind.INTEGER else pa.string()
    ids = zip(
        ("image_id", "caption_id"), (images, captions), unpack_ids(rows["pair"].to_numpy()), strict=True
    )
    return {
        name: by_place(names.shown).cast(kind).take(pa.array(surrogates)) for name, names, surrogates in ids
    }


def _answer_columns(data: ReleaseInput, rows: pd.DataFrame) -> dict[str, pa.Array]:
    """Who proposed each of these pairs, and how people answered."""
    offsets, codes = data.proposals.finders(rows["pair"].to_numpy())
    names = pa.array(data.proposals.annotators, pa.string()).take(pa.array(codes))
    n_judgements = rows["n_judgements"].to_numpy()
    return {
        "annotators": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), names),
        "n_judgements": pa.array(n_judgements.astype(np.int16)),
        "probability": pa.array(rows["probability"].to_numpy(np.float32), mask=n_judgements == 0),
    }


def _labels(column: pd.Series[int]) -> pa.Array:
    labels = column.to_numpy()
    return pa.array([label.value for label in Label]).take(pa.array(labels, mask=labels == NONE))


def _strings(column: pd.Series[str]) -> pa.Array:
    codes = column.cat.codes.to_numpy()
    return pa.array(column.cat.categories.tolist(), pa.string()).take(pa.array(codes, mask=codes == NONE))


def _by_bits(values: Sequence[str]) -> pa.Array:
    """At the place of each set of bits, the values whose bits are set."""
    every = [[v for place, v in enumerate(values) if mask >> place & 1] for mask in range(1 << len(values))]
    return pa.array(every, _TEXTS)


def _table(rows: Sequence[Mapping[str, object]], columns: Mapping[str, pa.DataType]) -> pa.Table:
    schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    return pa.Table.from_pylist(list(rows), schema=schema)
