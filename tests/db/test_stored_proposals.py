"""Proposals and pairs are numbered in canonical order, whatever their order and number, on both engines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from db_kit import pair_rows
from record_kit import proposal_frame

from mitl.core.arrays import pack_each
from mitl.db.session import open_database
from mitl.db.store import proposals
from mitl.db.store.columns import proposal_columns
from mitl.db.store.items import add_dataset
from mitl.db.store.proposals import AnnotatorRow
from mitl.records import AnnotatorKind, Caption, Direction, IdKind, Image, Pair, Proposal, RetrievalSet
from mitl.records.frames import PROPOSALS, frame

A, B, C, D = Pair(1, 2), Pair(1, 3), Pair(2, 1), Pair(3, 3)
FOUND = [
    Proposal(D, "near", Direction.I2T, 1, 0.5),
    Proposal(A, "near", Direction.T2I, 2, 0.25),
    Proposal(A, "far", Direction.I2T, 1, 1 / 3),
    Proposal(C, "far", Direction.T2I, 3, -2.0),
]


@pytest.fixture
def session(project_url):
    """A data set of three images with a caption each."""
    images = tuple(Image(str(i)) for i in (1, 2, 3))
    captions = tuple(Caption(str(i), str(i), "a thing") for i in (1, 2, 3))
    with open_database(project_url, create=True) as session:
        add_dataset(session, RetrievalSet("d", "table", IdKind.INTEGER, images, captions), "")
        yield session


def add(session, run, found):
    """Store a run of these proposals; how many pairs are new."""
    columns = {
        "pair": pack_each(one.pair for one in found),
        "annotator": [one.annotator for one in found],
        "direction": [tuple(Direction).index(one.direction) for one in found],
        "rank": [one.rank for one in found],
        "similarity": [one.similarity for one in found],
    }
    annotators = [AnnotatorRow(name, AnnotatorKind.RANKING, "{}", name) for name in ("near", "far", "idle")]
    rows = frame(PROPOSALS, columns)
    return proposals.add_run(session, run, "{}", {Direction.I2T: [3, 1]}, annotators, rows)


@pytest.mark.parametrize("few", [0, 1000], ids=["a look at all", "one by one"])
def test_a_run_stores_each_proposal_and_each_new_pair_once(session, monkeypatch, few):
    """New pairs are numbered by image and caption; those that were there keep their rows and become candidates."""
    monkeypatch.setattr(proposals, "_FEW", few)
    before = proposals.ensure_pairs(session, [C, B])

    new = add(session, "one", FOUND)
    again = add(session, "two", FOUND[:2])

    assert (new, again) == (2, 0)
    assert before == {B: 1, C: 2}
    assert pair_rows(session) == {B: 1, C: 2, A: 3, D: 4}
    assert proposals.ensure_pairs(session, [D, A]) == {A: 3, D: 4}
    assert proposals.candidate_pairs(session, list(Direction)) == [A, C, D]
    for run, found in ((1, FOUND), (2, FOUND[:2])):
        stored = proposal_columns(session, run_id=run)
        pd.testing.assert_frame_equal(stored, proposal_frame(found), check_categorical=False)
    unproposed = proposals.number_columns(session, "SELECT id FROM pair WHERE NOT proposed", 1)
    np.testing.assert_array_equal(unproposed, [[1]])
