"""The official ``mturk_parsed.csv``: one row per judgement, proposing annotator and direction.

The file names neither worker nor HIT nor direction, so a row says less than what it was written from:

- The rows of one judgement are those that agree in pair and answers. Where each of them comes n times, n workers gave
  that answer. An annotator that found the pair in both directions at the same rank doubles its rows as well; where
  nothing in the pair's rows tells the two apart, the number of judgements that is usual in the file decides.
- An annotator with two ranks for a pair found it in both directions, ``i2t`` standing first. With one rank, the side
  for which the annotator has more rows searched, since a query has a row for each of its ranks.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from mitl.crowd.result_file import ResultFile, ResultRow
from mitl.datasets.official import OFFICIAL_COLUMNS
from mitl.db.base import MOST_ROW
from mitl.errors import DatasetError
from mitl.records import Direction, Finding, Label, Outcome, PlaceAnswer
from mitl.records.questions import RATIONALE, Question, given_answers

ANSWER_COLUMNS = ("annotation", "shortcoming", "shortcoming2")
_NOTHING = {"", "nan", "none", "null", "na", "[]", "-"}
_CODES = re.compile(r"[\[(]?\d{1,6}(?:\.0)?(?:[|,; ] ?\d{1,6}(?:\.0)?)*[\])]?", re.ASCII)


def official_answer(cells: Mapping[str, str]) -> tuple[PlaceAnswer | None, list[Finding]]:
    """The answer of a judgement by one of its rows, None where it has none, and what was odd about it."""
    answer, findings = _answer(*(cells.get(column, "") for column in ANSWER_COLUMNS))
    return answer, list(findings)


@lru_cache(maxsize=1024)
def _answer(*values: str) -> tuple[PlaceAnswer | None, tuple[Finding, ...]]:
    """Kept, since a file of thousands of rows has few different answers."""
    cells = dict(zip(ANSWER_COLUMNS, values, strict=True))
    findings: list[Finding] = []
    codes = _codes(cells, "annotation", findings)
    if len(codes) != 1 or not 1 <= codes[0] <= len(Label):
        findings.append(
            Finding("missing_answer", f"annotation is {cells['annotation'][:80]!r}; known: 1 to 4")
        )
        return None, tuple(findings)
    answer = PlaceAnswer(
        place=1,
        outcome=Outcome.ANSWERED,
        label=Label.from_code(codes[0]),
        given=given_answers(
            **{question.name: _chosen(cells, question, findings) for question in RATIONALE if question.csv}
        ),
    )
    return answer, tuple(findings)


def _chosen(cells: Mapping[str, str], question: Question, findings: list[Finding]) -> list[str]:
    codes = _codes(cells, question.csv, findings)
    values = {choice.code: choice.value for choice in question.choices}
    for code in codes:
        if code not in values:
            findings.append(Finding("bad_value", f"{question.csv} is {code}; known: 1 to {len(values)}"))
    return [value for code, value in values.items() if code in codes]


def _codes(cells: Mapping[str, str], column: str, findings: list[Finding]) -> list[int]:
    text = cells.get(column, "").strip()
    if text.lower() in _NOTHING:
        return []
    if not _CODES.fullmatch(text):
        findings.append(Finding("bad_value", f"{column} is {text[:80]!a}, but numbers are wanted"))
        return []
    return [int(number) for number in re.findall(r"(\d+)(?:\.0)?", text)]


KIND = "mturk_parsed"
_Place = tuple[str, int, float]
"""Model, rank, score."""
_Answer = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class OfficialRow:
    """One row, with what it says of a proposal."""

    row: ResultRow
    image: str
    caption: str
    place: _Place
    answer: _Answer
    """The three answers as they stand in the file."""


@dataclass(frozen=True, slots=True)
class OfficialJudgement:
    """One worker's answer on one pair, with the rows that state it."""

    image: str
    caption: str
    rows: tuple[ResultRow, ...]
    nth: int
    """Counts the judgements of the pair from 1, in place of the workers' names."""


@dataclass(frozen=True, slots=True)
class OfficialProposal:
    """Who proposed a pair."""

    image: str
    caption: str
    model: str
    direction: Direction
    rank: int
    """From 1."""
    score: float


def is_official(columns: Sequence[str]) -> bool:
    """Whether the columns are those of the official file, others perhaps among them."""
    return set(OFFICIAL_COLUMNS) <= set(columns)


def official_rows(file: ResultFile) -> list[OfficialRow]:
    """The rows; ranks that count from 0 are raised by one.

    Raises:
        DatasetError: a rank or a score is not a number, an id or a model is missing.
    """
    places = {column: file.columns.index(column) for column in OFFICIAL_COLUMNS}
    rows = [
        _row(row, {name: row.cells[place].strip() for name, place in places.items()}) for row in file.rows
    ]
    if rows and min(row.place[1] for row in rows) == 0:
        rows = [
            replace(row, place=(model, rank + 1, score)) for row in rows for model, rank, score in [row.place]
        ]
    return rows


def official_judgements(rows: Iterable[OfficialRow]) -> list[OfficialJudgement]:
    """The judgements that the rows state, in the order of their pairs in the file."""
    pairs = _by_pair(rows)
    counts = {pair: _judgement_counts(of_pair) for pair, of_pair in pairs.items()}
    # The most frequent number of judgements among the pairs without doubt; 1 where all are in doubt.
    totals = Counter(
        sum(counts[pair].values()) for pair, rows in pairs.items() if not _is_doubtful(rows, counts[pair])
    )
    usual = max(totals, key=lambda total: (totals[total], -total), default=1)
    judgements = []
    for pair, of_pair in pairs.items():
        if _is_doubtful(of_pair, counts[pair]):
            counts[pair] = _nearer(counts[pair], usual)
        judgements += _split(pair, of_pair, counts[pair])
    return judgements


def official_proposals(
    rows: Iterable[OfficialRow], judgements: Iterable[OfficialJudgement], direction: Direction | None = None
) -> list[OfficialProposal]:
    """Who proposed which pair, each annotator at most once in a direction.

    Args:
        direction: which side searched where an annotator has one rank; None has it guessed.
    """
    pairs = _by_pair(rows)
    n_judgements = Counter((judgement.image, judgement.caption) for judgement in judgements)
    by_image: Counter[tuple[str, str]] = Counter()
    by_caption: Counter[tuple[str, str]] = Counter()
    for (image, caption), of_pair in pairs.items():
        for model in {row.place[0] for row in of_pair}:
            by_image[model, image] += 1
            by_caption[model, caption] += 1
    proposals = []
    for (image, caption), of_pair in pairs.items():
        for model, places in _places(of_pair).items():
            guess = Direction.I2T if by_image[model, image] >= by_caption[model, caption] else Direction.T2I
            ranked = _directed(places, n_judgements[image, caption], direction or guess)
            proposals += [
                OfficialProposal(image, caption, model, side, place[1], place[2]) for side, place in ranked
            ]
    return proposals


def _row(row: ResultRow, cells: Mapping[str, str]) -> OfficialRow:
    for column in ("model", "cid", "iid"):
        if not cells[column]:
            raise DatasetError(f"line {row.line} has no {column}; every row needs one")
        if not cells[column].isprintable():
            raise DatasetError(f"line {row.line}: {column} is {cells[column][:80]!a}, which is not a name")
    rank, score = _number(cells["ranking"]), _number(cells["score"])
    if rank is None or rank != int(rank) or not 0 <= rank < MOST_ROW:
        raise DatasetError(
            f"line {row.line}: ranking is {cells['ranking']!r}, but a whole number from 0 to {MOST_ROW - 1:,} is wanted"
        )
    if score is None:
        raise DatasetError(f"line {row.line}: score is {cells['score']!r}, but a number is wanted")
    answer = (cells["annotation"], cells["shortcoming"], cells["shortcoming2"])
    return OfficialRow(row, cells["iid"], cells["cid"], (cells["model"], int(rank), score), answer)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _by_pair(rows: Iterable[OfficialRow]) -> dict[tuple[str, str], list[OfficialRow]]:
    pairs: dict[tuple[str, str], list[OfficialRow]] = defaultdict(list)
    for row in rows:
        pairs[row.image, row.caption].append(row)
    return pairs


def _judgement_counts(rows: Sequence[OfficialRow]) -> dict[_Answer, int]:
    """Answer → how often each of its rows comes at least."""
    times: dict[_Answer, Counter[_Place]] = defaultdict(Counter)
    for row in rows:
        times[row.answer][row.place] += 1
    return {answer: math.gcd(*counts.values()) for answer, counts in times.items()}


def _is_doubtful(rows: Sequence[OfficialRow], counts: Mapping[_Answer, int]) -> bool:
    """Whether all annotators may have found the pair twice at the same rank."""
    two_ranks = any(len(places) > 1 for places in _places(rows).values())
    return not two_ranks and all(count % 2 == 0 for count in counts.values())


def _nearer(counts: Mapping[_Answer, int], usual: int) -> dict[_Answer, int]:
    total = sum(counts.values())
    halve = abs(total // 2 - usual) < abs(total - usual)
    return {answer: count // 2 if halve else count for answer, count in counts.items()}


def _split(
    pair: tuple[str, str], rows: Sequence[OfficialRow], counts: Mapping[_Answer, int]
) -> list[OfficialJudgement]:
    """The pair's judgements, the rows of an answer dealt out among those who gave it."""
    judgements: list[OfficialJudgement] = []
    for answer, count in counts.items():
        dealt: list[list[ResultRow]] = [[] for _ in range(count)]
        seen: Counter[_Place] = Counter()
        for row in rows:
            if row.answer == answer:
                dealt[seen[row.place] % count].append(row.row)
                seen[row.place] += 1
        judgements += [
            OfficialJudgement(*pair, tuple(proposals), len(judgements) + nth)
            for nth, proposals in enumerate(dealt, start=1)
        ]
    return judgements


def _places(rows: Iterable[OfficialRow]) -> dict[str, Counter[_Place]]:
    """Model → where it has the pair and how often, in the order of the file."""
    by_model: dict[str, Counter[_Place]] = defaultdict(Counter)
    for row in rows:
        by_model[row.place[0]][row.place] += 1
    return by_model


def _directed(
    places: Counter[_Place], n_judgements: int, single: Direction
) -> list[tuple[Direction, _Place]]:
    ordered = list(places)
    if len(ordered) > 1:
        return list(zip(Direction, ordered, strict=False))
    both = places[ordered[0]] >= 2 * n_judgements
    return [(direction, ordered[0]) for direction in (Direction if both else (single,))]
