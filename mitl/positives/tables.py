"""The Parquet tables of a release, as bytes."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mitl.core.arrays import spans, unpack_ids
from mitl.core.formats import csv_bytes
from mitl.datasets.official import OFFICIAL_COLUMNS
from mitl.judgements.aggregators import Posterior
from mitl.positives.ids import PAIR_COLUMNS, Names, ReleaseIds, by_place, pair_columns
from mitl.positives.merging import SOURCES
from mitl.positives.privacy import pseudonym
from mitl.positives.release_input import ReleaseInput
from mitl.positives.summary import SPEAKS
from mitl.proposals.candidates import finders
from mitl.records import Label, Outcome, PairRole, PositiveSource
from mitl.records.frames import NONE, ROLES, counts
from mitl.records.questions import Question, QuestionType

_TEXTS = pa.list_(pa.string())


def positives_table(data: ReleaseInput, names: Names) -> pa.Table:
    """One row per positive, in order of the pairs, with what speaks for it."""
    kept = data.merged.pairs[data.merged.pairs["kept"]]
    speaks = (kept[name].to_numpy(np.int64) << n for n, name in enumerate(SPEAKS.values()))
    return pa.table(
        {
            **pair_columns(names, kept),
            "label": label_column(kept["label"].where(kept["verified"], NONE)),
            "sources": _by_bits([source.value for source in SPEAKS]).take(pa.array(sum(speaks))),
            **_answer_columns(data, kept),
            **_machine_columns(data, kept),
            **chosen_columns(data.chosen, kept["pair"].to_numpy()),
        }
    )


def negatives_table(data: ReleaseInput, names: Names) -> pa.Table:
    """One row per pair that people, or else a machine, called no match, in order of the pairs."""
    negative = data.merged.pairs[data.merged.pairs["negative"]]
    columns = {
        **pair_columns(names, negative),
        "label": label_column(negative["label"]),
        **_answer_columns(data, negative),
    }
    machine = _machine_columns(data, negative)
    if machine:
        said = (PositiveSource.JUDGEMENT, PositiveSource.MACHINE)
        who = pa.array([[source.value] for source in said], _TEXTS)
        machine["sources"] = who.take(pa.array((negative["label"] == NONE).to_numpy(np.int64)))
    return pa.table({**columns, **machine, **chosen_columns(data.chosen, negative["pair"].to_numpy())})


def chosen_columns(chosen: pd.DataFrame, pairs: NDArray[np.int64]) -> dict[str, pa.Array]:
    """``round`` and ``strategy`` of each packed pair (n,), null where no round chose it; nothing without rounds."""
    if not len(chosen):
        return {}
    packed = chosen["pair"].to_numpy()
    place = np.minimum(np.searchsorted(packed, pairs), len(packed) - 1)
    rows = pa.array(place, mask=packed[place] != pairs)
    return {
        "round": pa.array(chosen["round"].to_numpy()).take(rows),
        "strategy": pa.array(chosen["strategy"].tolist(), pa.string()).take(rows),
    }


def posteriors_table(data: ReleaseInput, posterior: Posterior, names: Names) -> pa.Table:
    """One row per pair with a usable answer, in order of the pairs: what a fitted aggregator holds possible."""
    answered = data.merged.pairs[data.merged.pairs["label"] != NONE]
    levels = {label.value: pa.array(posterior.level[:, place]) for place, label in enumerate(Label)}
    match = {"match": posterior.match, "match_low": posterior.low, "match_high": posterior.high}
    return pa.table(
        {
            **pair_columns(names, answered),
            **levels,
            **{name: pa.array(column) for name, column in match.items() if column is not None},
        }
    )


def judgements_table(data: ReleaseInput, shown: pd.DataFrame, names: Names) -> pa.Table:
    """One row per answer on a candidate, by pair and then by pseudonym, so that the order tells nothing.

    Gold controls are left out: they check workers and would give the keys of later rounds away. So are answers of
    audits, which stand in files of their own where they certify the release. Free text is there
    where the input holds it.

    Args:
        shown: what :func:`mitl.positives.privacy.shown_judgements` gives.
    """
    outcomes = pa.array([outcome.value for outcome in Outcome])
    active_ms = shown["active_ms"].to_numpy()
    return pa.table(
        {
            **pair_columns(names, shown),
            "worker": _strings(shown["worker"]),
            "label": label_column(shown["label"]),
            "outcome": outcomes.take(pa.array(shown["outcome"].to_numpy())),
            **{q.column: _choices(q, shown[q.column].to_numpy()) for q in data.questions if q.choices},
            "active_ms": pa.array(active_ms, mask=active_ms == NONE),
            "usable": pa.array(shown["usable"].to_numpy()),
            **{
                q.column: _strings(shown[q.column])
                for q in data.questions
                if not q.choices and q.column in shown
            },
        }
    )


def collected_table(data: ReleaseInput, images: ReleaseIds) -> pa.Table:
    """One row per text that people gave here and a second worker accepted, by its id: originals of this release.

    The column of images has the type of the other tables'. A written text is no caption of the data set, so it stands
    here and in no list of positives; a picked pair stands in both.
    """
    texts = data.collected
    return pa.table(
        {
            "image_id": images.column([text.image for text in texts]),
            "text_id": pa.array([text.name for text in texts], pa.string()),
            "text": pa.array([text.text for text in texts], pa.string()),
            "task": pa.array(["write" if text.caption is None else "pick" for text in texts], pa.string()),
            "writer": pa.array([pseudonym(text.writer, data.salt) for text in texts], pa.string()),
            "reviewer": pa.array([pseudonym(text.reviewer, data.salt) for text in texts], pa.string()),
            "label": pa.array([text.label for text in texts], pa.string()),
            "strategy": pa.array([text.strategy for text in texts], pa.string()),
        }
    )


def ids_table(names: Names) -> pa.Table:
    """Which string id each integer of the JSONs stands for: kind (image or caption), number, external_id."""
    rows = [
        {"kind": kind, "number": ids.number[surrogate], "external_id": ids.shown[surrogate]}
        for kind, ids in zip(("image", "caption"), names, strict=True)
        for surrogate in sorted(ids.number)
    ]
    kinds = [("kind", pa.string()), ("number", pa.int64()), ("external_id", pa.string())]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as one Parquet file; the same table gives the same bytes under one pyarrow."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=1 << 17)
    return bytes(sink.getvalue().to_pybytes())


def _answer_columns(data: ReleaseInput, rows: pd.DataFrame) -> dict[str, pa.Array]:
    """Who proposed each of these pairs, and how people answered."""
    offsets, codes = finders(data.proposals, rows["pair"].to_numpy())
    names = pa.array(data.proposals["annotator"].cat.categories, pa.string()).take(pa.array(codes))
    n_judgements = rows["n_judgements"].to_numpy()
    return {
        "annotators": pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), names),
        "n_judgements": pa.array(n_judgements.astype(np.int16)),
        "probability": pa.array(rows["probability"].to_numpy(np.float32), mask=n_judgements == 0),
    }


def _machine_columns(data: ReleaseInput, rows: pd.DataFrame) -> dict[str, pa.Array]:
    """What a machine called each of these pairs; no columns in a release without such labels."""
    if not data.has_machine_labels:
        return {}
    without = (rows["machine"] == NONE).to_numpy()
    return {
        "machine_label": label_column(rows["machine"]),
        "machine_probability": pa.array(rows["machine_probability"].to_numpy(np.float32), mask=without),
    }


def label_column(column: pd.Series[int]) -> pa.Array:
    """Labels by their places in Label, in words; null for NONE."""
    labels = column.to_numpy()
    return pa.array([label.value for label in Label]).take(pa.array(labels, mask=labels == NONE))


def _strings(column: pd.Series[str]) -> pa.Array:
    codes = column.cat.codes.to_numpy()
    return pa.array(column.cat.categories.tolist(), pa.string()).take(pa.array(codes, mask=codes == NONE))


def _choices(question: Question, masks: NDArray[np.integer]) -> pa.Array:
    """For each answer its choice, or the list of its choices in their declared order."""
    places, distinct = pd.factorize(masks)
    chosen = [[choice.value for choice in question.chosen(int(mask))] for mask in distinct]
    if question.type is QuestionType.CHOICE:
        values = pa.array([codes[0] if codes else None for codes in chosen], pa.string())
    else:
        values = pa.array(chosen, _TEXTS)
    return values.take(pa.array(places))


def _by_bits(values: Sequence[str]) -> pa.Array:
    """At the place of each set of bits, the values whose bits are set."""
    every = [[v for place, v in enumerate(values) if mask >> place & 1] for mask in range(1 << len(values))]
    return pa.array(every, _TEXTS)


CONFLICT_COLUMNS = (*PAIR_COLUMNS, "label", "n_judgements", "cxc_score", "original", "decided_by", "kept")

_ROWS_AT_ONCE = 1 << 17
"""Judgements that are written together; bounds the memory."""
_LEAST, _MOST = 1.001e-4, 1e6
"""Between them Arrow and Python write a number alike, unless it is whole."""


def json_bytes(value: object) -> bytes:
    """Readable JSON with sorted keys and a final newline."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def positives_json(listed: Mapping[int, Sequence[int]], queries: ReleaseIds, items: ReleaseIds) -> bytes:
    """``{query: [items]}`` with integers, the queries in id order, in the layout of the official JSONs."""
    numbered = {
        str(queries.number[query]): [items.number[item] for item in listed_items]
        for query, listed_items in sorted(listed.items())
    }
    return (json.dumps(numbered, separators=(",", ":")) + "\n").encode()


def official_csv(data: ReleaseInput, shown: pd.DataFrame, names: Names) -> bytes:
    """The usable judgements in the official layout: one row per judgement, proposing annotator and direction.

    Ranks start at 1, scores are the annotator's similarities, answers are 1 (yes) to 4 (no); the codes of several
    choices are joined by ``|``, and what else was asked follows the official columns. Golds and repeats are left out.

    Args:
        shown: what :func:`mitl.positives.privacy.shown_judgements` gives.
    """
    listed = shown[counts(shown) & (shown["role"] != ROLES.index(PairRole.REPEAT))]
    proposals = {name: column.to_numpy() for name, column in data.proposals.items() if name != "annotator"}
    annotator = data.proposals["annotator"].cat
    codes = annotator.codes.to_numpy()
    annotators = pa.array(
        [csv_bytes([[name]]).decode().strip() for name in annotator.categories], pa.string()
    )
    image_names, caption_names = (by_place(ids.number) for ids in names)
    asked = [question for question in data.questions if question.csv]
    further = [question.csv for question in asked if question.csv not in OFFICIAL_COLUMNS]
    sink = io.BytesIO(csv_bytes([(*OFFICIAL_COLUMNS, *further)]))
    sink.seek(0, io.SEEK_END)
    for first in range(0, len(listed), _ROWS_AT_ONCE):
        part = listed.iloc[first : first + _ROWS_AT_ONCE]
        pairs = part["pair"].to_numpy()
        starts, ends = (np.searchsorted(proposals["pair"], pairs, side=side) for side in ("left", "right"))
        rows, proposed = np.repeat(np.arange(len(part)), ends - starts), spans(starts, ends)
        image_ids, caption_ids = unpack_ids(pairs[rows])
        columns = (
            annotators.take(pa.array(codes[proposed])),
            pa.array(proposals["rank"][proposed]).cast(pa.string()),
            _decimals(proposals["similarity"][proposed].astype(np.float32)),
            caption_names.take(pa.array(caption_ids)).cast(pa.string()),
            image_names.take(pa.array(image_ids)).cast(pa.string()),
            pa.array(part["label"].to_numpy()[rows] + 1).cast(pa.string()),
            *(_codes(question, part[question.column].to_numpy()).take(pa.array(rows)) for question in asked),
        )
        lines = pc.binary_join_element_wise(*columns, ",").to_pylist()
        sink.write("\n".join([*lines, ""]).encode())
    return sink.getvalue()


def conflicts_csv(data: ReleaseInput, names: Names) -> bytes:
    """Every pair on which people, CxC, the original annotation, a machine and an audit disagree, and its fate."""
    conflicts = data.merged.pairs[data.merged.pairs["conflict"]]
    words = [label.value for label in Label] + [""]  # the last is for NONE
    both = zip(names, unpack_ids(conflicts["pair"].to_numpy()), strict=True)
    further = {}
    if data.has_machine_labels:
        further["machine"] = list(map(words.__getitem__, conflicts["machine"].tolist()))
    if data.audit is not None:
        said = np.select([conflicts["found"], conflicts["doubted"]], ["match", "no match"], "")
        further["audit"] = said.tolist()
    columns = (
        *(map(ids.shown.__getitem__, surrogates.tolist()) for ids, surrogates in both),
        map(words.__getitem__, conflicts["label"].tolist()),
        conflicts["n_judgements"].tolist(),
        ("" if math.isnan(score) else score for score in conflicts["score"].tolist()),
        map(_truth, conflicts["original"].tolist()),
        (SOURCES[place].value for place in conflicts["decided_by"].tolist()),
        map(_truth, conflicts["kept"].tolist()),
        *further.values(),
    )
    return csv_bytes([(*CONFLICT_COLUMNS, *further), *zip(*columns, strict=True)])


def _decimals(numbers: NDArray[np.float32]) -> pa.Array:
    """Each number by its shortest digits, as Python writes it; Arrow is quick and differs for the great and small."""
    size = np.abs(numbers)
    alike = (size > _LEAST) & (size < _MOST) & (numbers != np.trunc(numbers))
    texts = pa.array(numbers).cast(pa.string())
    return pc.replace_with_mask(texts, pa.array(~alike), pa.array(map(str, numbers[~alike]), pa.string()))


def _codes(question: Question, masks: NDArray[np.integer]) -> pa.Array:
    """For each answer the official numbers of its choices."""
    places, distinct = pd.factorize(masks)
    codes = ["|".join(str(choice.code) for choice in question.chosen(int(mask))) for mask in distinct]
    return pa.array(codes, pa.string()).take(pa.array(places))


def _truth(value: bool) -> str:
    return "true" if value else "false"
