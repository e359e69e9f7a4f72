"""Judgements and proposals as columns say what the records say."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judgement_kit import JUDGEMENTS, PAIRS
from process_kit import project_settings
from record_kit import answers_by_pair, most_positive, proposal_frame
from sqlalchemy import text
from world_kit import make_world, run_propose, run_publish

from mitl.core.arrays import distinct, pack_pairs, spans, unpack_pairs
from mitl.db.session import open_database
from mitl.db.store import columns, items, judgements
from mitl.positives.merging import MergeRules
from mitl.positives.pair_answers import judgement_frame, pair_answers
from mitl.proposals.candidates import distinct_pairs, finders
from mitl.records import (
    Concept,
    Direction,
    Environment,
    GoldControl,
    Judgement,
    Label,
    Pair,
    PairRole,
    Proposal,
)
from mitl.records.questions import CONCEPT
from mitl.stages.analysing.snapshot import read_project
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

PROPOSALS = st.lists(
    st.builds(
        Proposal,
        PAIRS,
        st.sampled_from(["vsrn", "clip", "pcme"]),
        st.sampled_from(list(Direction)),
        st.integers(1, 5),
        st.floats(-1, 1),
    ),
    max_size=30,
    unique_by=lambda proposal: (proposal.pair, proposal.annotator, proposal.direction),
)


def as_rows(found):
    """The columns as sorted tuples of plain values."""
    return sorted(
        zip(
            found.pair.tolist(),
            found.worker.tolist(),
            found.label.tolist(),
            found.outcome.tolist(),
            found.role.tolist(),
            found.usable.tolist(),
            found.shortcomings.tolist(),
            found.concepts.tolist(),
            found.active_ms.tolist(),
            strict=True,
        )
    )


@given(JUDGEMENTS, st.booleans())
def test_answers_of_pairs_are_those_of_the_records(records, official):
    """Majority with its tie rule, or the most positive answer, with the share of positive ones."""
    expected = answers_by_pair(records, *([most_positive] if official else []))

    found = pair_answers(judgement_frame(records), MergeRules(official=official)).pairs

    assert unpack_pairs(found.pair.to_numpy()) == list(expected)
    assert found.label.tolist() == [answer.label.code - 1 for answer in expected.values()]
    assert found.n_judgements.tolist() == [answer.n_judgements for answer in expected.values()]
    assert found.probability.tolist() == [answer.probability for answer in expected.values()]


@given(st.lists(st.sampled_from(list(Concept)), unique=True))
def test_bits_lead_back(values):
    """In the enum's own order."""
    found = judgement_frame([Judgement(Pair(1, 1), "w", Label.YES, given={"concept": tuple(values)})])

    chosen = CONCEPT.chosen(int(found.concepts[0]))
    assert [choice.value for choice in chosen] == [value for value in Concept if value in values]


@given(PROPOSALS, st.lists(PAIRS, max_size=8))
def test_finders_are_the_annotators_that_proposed_a_pair(records, asked):
    """Each once, by name; pairs that nobody proposed have none."""
    expected = defaultdict(set)
    for proposal in records:
        expected[proposal.pair].add(proposal.annotator)
    found = proposal_frame(records)
    annotators = found["annotator"].cat.categories
    packed = pack_pairs(asked)

    offsets, codes = finders(found, packed)

    names = [annotators[code] for code in codes]
    got = [names[start:end] for start, end in itertools.pairwise(offsets)]
    assert got == [sorted(expected[pair]) for pair in unpack_pairs(packed)]
    assert distinct_pairs(found) == {
        name: len({p.pair for p in records if p.annotator == name}) for name in annotators
    }


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=10))
def test_spans_are_the_places_of_each_stretch(stretches):
    """One after the other, empty ones too."""
    starts = np.array([start for start, _ in stretches], np.int64)
    ends = starts + np.array([length for _, length in stretches], np.int64)

    assert spans(starts, ends).tolist() == [place for s, n in stretches for place in range(s, s + n)]


EVERY_PROPOSAL = """
    SELECT left_id, right_id, name, direction, rank, similarity FROM proposal
        JOIN pair ON pair.id = pair_id JOIN annotator ON annotator.id = annotator_id"""


@pytest.mark.slow
@pytest.mark.thorough(but=("sqlite",))
def test_the_database_gives_the_same_columns_as_records(tmp_path, project_url):
    """On both engines: every judgement with its reasons, every proposal with its best rank, ratings and originals."""
    crowd = f"sqlite:///{tmp_path / 'crowd.db'}"
    make_world(tmp_path, n_images=12, db_url=project_url, crowd_url=crowd)
    settings = project_settings(tmp_path, db_url=project_url, crowd_url=crowd)
    run_propose(settings, image_queries=4, caption_queries=4)
    run_propose(settings, image_queries=6, caption_queries=6)
    run_publish(settings, template="pairs-rationale")
    simulate(settings, Environment.SANDBOX, population="careful:0.5,random:0.5")
    harvest(settings, Environment.SANDBOX)

    with open_database(settings.db_url, read_only=True) as session:
        known = read_project(session, settings, Environment.SANDBOX)
        records = [row.record for row in judgements.judgements(session, Environment.SANDBOX)]
        found = columns.judgement_columns(session, Environment.SANDBOX)
        proposed = columns.proposal_columns(session)
        rows = [
            Proposal(Pair(left, right), name, Direction(way), rank, similarity)
            for left, right, name, way, rank, similarity in session.execute(text(EVERY_PROPOSAL))
        ]
        originals = columns.original_columns(session, items.dataset(session).id)

    assert as_rows(found) == as_rows(judgement_frame(records))
    assert any(found.concepts) and any(found.shortcomings)
    best = {(one.pair, one.annotator, one.direction): one for one in sorted(rows, key=lambda one: -one.rank)}
    pd.testing.assert_frame_equal(proposed, proposal_frame(best.values()))
    assert np.array_equal(distinct(originals), pack_pairs(known.originals))


@pytest.mark.parametrize("aggregator", ["dawid-skene", "ordinal"])
def test_a_model_listens_to_workers_who_pass_their_controls(aggregator):
    """Two who answer at random outvote a careful one in a majority; known controls tell who they are."""
    rng = np.random.default_rng(0)
    truth = [Label.YES if n % 2 else Label.NO for n in range(60)]
    records = []
    for n, right in enumerate(truth):
        records.append(Judgement(Pair(1, n), "careful", right))
        for who in ("guess1", "guess2"):
            records.append(Judgement(Pair(1, n), who, [Label.YES, Label.NO][rng.integers(2)]))
    for n in range(40):
        role = PairRole.GOLD_POSITIVE if n % 2 else PairRole.GOLD_NEGATIVE
        right = Label.YES if n % 2 else Label.NO
        records.append(Judgement(Pair(2, n), "careful", right, role=role))
        for who in ("guess1", "guess2"):
            records.append(Judgement(Pair(2, n), who, [Label.YES, Label.NO][rng.integers(2)], role=role))
    known = judgement_frame(records)

    def wrong(name):
        found = pair_answers(known, MergeRules(aggregator=name))
        assert unpack_pairs(found.pairs.pair.to_numpy()) == [Pair(1, n) for n in range(60)]
        matches = [list(Label)[code].is_positive for code in found.pairs.label]
        return sum(match != right.is_positive for match, right in zip(matches, truth, strict=True))

    assert wrong(aggregator) == 0 < wrong("majority")


def test_withdrawn_controls_tell_a_model_nothing():
    """The same answers without them; controls are never among the pairs."""
    control = GoldControl(Pair(5, 5), PairRole.GOLD_POSITIVE)
    records = [Judgement(Pair(1, n), w, Label.YES) for n in range(5) for w in ("a", "b")]
    with_control = [*records, Judgement(control.pair, "a", Label.NO, role=control.role)]
    rules = MergeRules(aggregator="dawid-skene")

    plain = pair_answers(judgement_frame(records), rules).pairs
    found = pair_answers(judgement_frame(with_control), rules, {control}).pairs

    assert found.pair.tolist() == plain.pair.tolist()
    assert found.probability.to_numpy() == pytest.approx(plain.probability.to_numpy())
