"""Texts that search in texts: BEIR's folders, and MS MARCO's tables; documents, queries and judgements between them.

Sources: ``beir/datasets/data_loader.py`` of github.com/beir-cellar/beir; README of
github.com/microsoft/MSMARCO-Passage-Ranking.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mitl.datasets.assembling import assemble, by_id, chosen_split
from mitl.datasets.files import caption_text, cell_id, document_text, readable, text_of
from mitl.datasets.row_sources import json_lines
from mitl.datasets.table import TableReading, Told
from mitl.errors import DatasetError
from mitl.records import Caption, Image, RetrievalSet, several
from mitl.records.forms import TEXTS

DOCUMENT, QUERY = TEXTS.sides
BEIR, MSMARCO = "beir", "msmarco"
_LAYOUTS = {BEIR: ("corpus.jsonl", "queries.jsonl", "qrels"), MSMARCO: ("collection.tsv",)}
"""Kind → what a folder of it holds."""
ROOM_ON_PAGE = 1_300
"""Bytes of a document, where a question of 65,535 bytes holds 20 of them with all else that is on the page."""
_QRELS = re.compile(r"qrels\.(.+)\.tsv")
_NAMES_OF_IDS = frozenset({"id", "_id", "pid", "docid", "doc_id", "passage_id", "qid", "query_id"})
"""What people call the column of ids where they write names of columns into a file that has none."""
_DOCUMENT_ID, _QUERY_ID = "id of a document", "id of a query"


def text_set_kind(folder: Path) -> str | None:
    """Which of the two kinds of folder this is; None where it is neither.

    Raises:
        DatasetError: it holds some of what such a folder has, and not all.
    """
    for kind, names in _LAYOUTS.items():
        missing = [name for name in names if not (folder / name).exists()]
        present = [name for name in names if name not in missing]
        if missing and (names[0] in present or len(present) > 1):
            raise DatasetError(
                f"{str(folder)!r} has {' and '.join(present)} but not {' and '.join(missing)}; put there the "
                "documents, what queries ask and which documents answer them, as BEIR lays it out"
            )
        if not missing:
            return kind
    return None


@dataclass(frozen=True, slots=True)
class _Judged:
    """One line of qrels."""

    query: str
    document: str
    score: int
    where: str


def read_text_set(folder: Path, kind: str, reading: TableReading, told: Told) -> RetrievalSet:
    """The documents of a folder, the queries of one split that have a positive, and the positives.

    A judgement with a score above 0 is an original positive. Queries without a judgement in the split are left out, as
    BEIR's own loader leaves them out.

    Args:
        told: receives what was left out.

    Raises:
        DatasetError: a file is missing or malformed, an id comes twice or is judged without being there, a text is
            empty (``reading.skip_empty`` leaves such documents out), or a judged query has no positive.
        UsageError: there are several splits and none is named, or another one is.
    """
    if kind == BEIR:
        splits = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
        split = _chosen(folder, splits, reading.split)
        judged = list(_beir_judgements(splits[split]))
        file = folder / "corpus.jsonl"
        documents = by_id(DOCUMENT, _beir_documents(file, reading, told), file)
        asked = folder / "queries.jsonl"
        queries = by_id(QUERY, _beir_queries(asked), asked)
    else:
        splits = {
            match[1]: path for path in sorted(folder.iterdir()) if (match := _QRELS.fullmatch(path.name))
        }
        split = _chosen(folder, splits, reading.split)
        judged = list(_marco_judgements(splits[split]))
        file = folder / "collection.tsv"
        texts = ((document_id, {"text": text}, where) for document_id, text, where in _marco_rows(file))
        documents = by_id(DOCUMENT, _documents(texts, reading, told), file)
        asked = folder / f"queries.{split}.tsv"
        queries = by_id(
            QUERY,
            ((query_id, caption_text(text, "text", where)) for query_id, text, where in _marco_rows(asked)),
            asked,
        )
    positives = _positives(judged, documents, queries, asked)
    told.lines.append(
        f"read as: {kind} ({split}), {DOCUMENT} = {', '.join(_LAYOUTS[kind][:1])}, {QUERY} = {asked.name}, positive = "
        f"a score above 0 in {splits[split].name}"
    )
    if unjudged := len(queries) - len(positives):
        noun = several(unjudged, "query", "queries")
        told.lines.append(f"left out {noun} without a judgement in the split {split!r}")
    mean = sum(len(text.encode()) for texts in documents.values() for text in texts) // max(1, len(documents))
    if mean > ROOM_ON_PAGE:
        told.lines.append(
            f"its documents have {mean:,} bytes on average, and a page has room for about {ROOM_ON_PAGE:,} each; cut "
            "them into passages, or `mitl publish` will refuse pages that hold too much"
        )
    data = assemble(
        folder.name,
        kind,
        [Image(document_id, texts=texts) for document_id, texts in documents.items()],
        [
            Caption(query_id, document_ids[0], queries[query_id])
            for query_id, document_ids in positives.items()
        ],
        source=folder,
        sides=(DOCUMENT, QUERY),
    )
    more = sorted((document, query) for query, (_, *rest) in positives.items() for document in rest)
    return data.with_positives(more)


def _chosen(folder: Path, splits: Mapping[str, Path], wanted: str | None) -> str:
    if not splits:
        raise DatasetError(f"{str(folder)!r} has no judgements; put qrels/test.tsv or qrels.dev.tsv there")
    return chosen_split(folder, splits, wanted)


def _positives(
    judged: Sequence[_Judged], documents: Mapping[str, object], queries: Mapping[str, str], asked: Path
) -> dict[str, list[str]]:
    """Query → its positives, in the order of the file; by the queries that are judged."""
    scores: dict[tuple[str, str], int] = {}
    positives: dict[str, list[str]] = {}
    for row in judged:
        for item_id, known, side in ((row.query, queries, QUERY), (row.document, documents, DOCUMENT)):
            if item_id not in known:
                raise DatasetError(
                    f"{row.where} judges {side} {item_id!r}, which is not among the {len(known):,} that were read, as "
                    f"{next(iter(known), 'none')!r}; take the files of one version of the data set"
                )
        if scores.setdefault((row.query, row.document), row.score) != row.score:
            raise DatasetError(
                f"{row.where} judges document {row.document!r} for query {row.query!r} again and otherwise; keep one"
            )
        of_query = positives.setdefault(row.query, [])
        if row.score > 0 and row.document not in of_query:
            of_query.append(row.document)
    if not positives:
        raise DatasetError(f"no query of {asked.name!r} is judged; name another split with --split")
    without = next((query for query, of_query in positives.items() if not of_query), None)
    if without is not None:
        raise DatasetError(
            f"query {without!r} has no positive: none of its judgements has a score above 0; take its lines out"
        )
    return positives


def _objects(path: Path) -> Iterator[tuple[Mapping[str, object], str]]:
    for number, row in json_lines(path):
        where = f"line {number} of {str(path)!r}"
        if not isinstance(row, dict) or "_id" not in row:
            raise DatasetError(f'{where} is no object with an id; write lines as {{"_id": "7", "text": "…"}}')
        yield row, where


def _beir_documents(path: Path, reading: TableReading, told: Told) -> Iterator[tuple[str, tuple[str, ...]]]:
    rows = (
        (row["_id"], {name: row.get(name) for name in ("title", "text")}, at) for row, at in _objects(path)
    )
    return _documents(rows, reading, told)


def _documents(
    rows: Iterable[tuple[object, Mapping[str, object], str]], reading: TableReading, told: Told
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Those that have a text, each with its own ones; of a title and a text, one may be empty."""
    left_out = 0
    for document_id, named, where in rows:
        texts = [(name, text) for name, text in named.items() if text_of(text) is not None]
        if not texts and reading.skip_empty:
            left_out += 1
            continue
        if not texts:
            lacking = "neither title nor text" if len(named) > 1 else "no text"
            raise DatasetError(f"{where} has {lacking}; mend it, or leave such out with --skip-empty")
        yield (
            cell_id(document_id, _DOCUMENT_ID, where),
            tuple(document_text(text, name, where) for name, text in texts),
        )
    if left_out:
        told.lines.append(f"left out {several(left_out, 'document')} without a text")


def _beir_queries(path: Path) -> Iterator[tuple[str, str]]:
    for row, where in _objects(path):
        if text_of(row.get("text")) is None:
            raise DatasetError(f"{where} has no text; write what it asks, or take it and its judgements out")
        yield cell_id(row["_id"], _QUERY_ID, where), caption_text(row["text"], "text", where)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """(line without its end, where it stands); nothing is quoted in these files."""
    with (
        readable(path, "texts or judgements, a line each"),
        path.open(encoding="utf-8-sig", newline="\n") as file,
    ):
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield line.rstrip("\r\n"), f"line {number} of {str(path)!r}"


def _beir_judgements(path: Path) -> Iterator[_Judged]:
    """The lines after the header; a first line that is a judgement itself is read too."""
    for place, (line, where) in enumerate(_lines(path)):
        cells = line.split("\t")
        if place or (len(cells) == 3 and any(letter.isdigit() for letter in cells[2])):
            yield _judged(cells, (0, 1, 2), where, "query-id, corpus-id and score, with tabs between them")


def _marco_judgements(path: Path) -> Iterator[_Judged]:
    for line, where in _lines(path):
        yield _judged(line.split(), (0, 2, 3), where, "qid, 0, pid and score")


def _judged(cells: Sequence[str], places: tuple[int, int, int], where: str, wanted: str) -> _Judged:
    try:
        query, document, score = (cells[place].strip() for place in places)
        if len(cells) != places[-1] + 1:
            raise ValueError
        return _Judged(query, document, int(score), where)
    except (IndexError, ValueError):
        raise DatasetError(f"{where} is not {wanted}, where the score is a whole number") from None


def _marco_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """(id, text, where it stands); MS MARCO's own files begin with a row, and names of columns are none."""
    for place, (line, where) in enumerate(_lines(path)):
        id_, tab, text = line.partition("\t")
        if not place and id_.strip().lower() in _NAMES_OF_IDS:
            continue
        if not tab:
            raise DatasetError(f"{where} is not an id, a tab and a text; put a tab between them")
        yield cell_id(id_, "id", where), text, where
