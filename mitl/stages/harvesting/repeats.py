"""Answers on a pair that its worker has judged before: they do not count a second time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mitl.db.store.answer_columns import AnswerColumns


@dataclass(frozen=True, slots=True)
class Again:
    """A place at which a worker was asked what the same worker had judged."""

    assignment_id: int
    place: int


def asked_before(answers: AnswerColumns, order: Mapping[int, int]) -> list[Again]:
    """All answers but each worker's first on a pair, in the order of the work; controls are meant to come again.

    Args:
        order: submission → its turn.
    """
    rows = _more_than_once(answers)
    columns = (answers.assignment, answers.place, answers.worker, answers.pair)
    found = zip(*(column[rows].tolist() for column in columns), strict=True)
    seen: set[tuple[int, int]] = set()
    repeated = []
    for assignment, place, worker, pair in sorted(found, key=lambda row: (order[row[0]], row[1])):
        if (worker, pair) in seen:
            repeated.append(Again(assignment, place))
        seen.add((worker, pair))
    return repeated


def _more_than_once(answers: AnswerColumns) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where a worker's answers on a pair stand that the worker has judged more than once: few, among millions."""
    rows = np.flatnonzero(~answers.is_gold)
    if not len(rows):
        return rows
    keys = answers.worker[rows] * (answers.pair[rows].max() + 1) + answers.pair[rows]
    by_key = np.argsort(keys, kind="stable")
    same = keys[by_key][1:] == keys[by_key][:-1]
    again = np.zeros(len(rows), np.bool_)
    again[by_key[1:]] |= same
    again[by_key[:-1]] |= same
    return rows[again]
