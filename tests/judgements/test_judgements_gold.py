"""Gold checks, workers' records, withdrawn controls, and which judgements count."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import GoldAnswer, gold_records, withdrawn_golds

from mitl.core.arrays import pack_pairs
from mitl.crowd.populations import CHARACTERS, PlayedHit, answer_hit
from mitl.datasets.scenes.world import generate, truth_matrix
from mitl.judgements.gold_records import (
    GoldCheck,
    GoldRecord,
    check_assignment,
    gold_findings,
    is_usable,
    verdict,
)
from mitl.proposals.sampling import gold_negatives, gold_positives
from mitl.records import Decision, Finding, GoldControl, Judgement, Label, Outcome, Pair, PairRole
from mitl.records.questions import GoldRule

POSITIVE, NEGATIVE = PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE
RULE = GoldRule()


def gold(number, role=POSITIVE):
    return GoldControl(Pair(number, number), role)


def decide(check, record=None, *, excluded=False):
    return verdict(gold_findings(check), record, excluded=excluded)


def on_page(role, label, number=1):
    outcome = Outcome.ANSWERED if label else Outcome.SKIPPED
    return Judgement(Pair(number, number), "A1", label, outcome=outcome, role=role)


def answer(worker, number, *, passed, role=POSITIVE):
    return GoldAnswer(worker, gold(number, role), passed)


def spotless(worker, first=100, count=8):
    """Controls that this worker alone meets and passes."""
    offset = first * (1 + int(worker[1:]))
    return [answer(worker, offset + n, passed=True) for n in range(count)]


@pytest.mark.parametrize("label", list(Label))
def test_a_control_passes_on_its_own_side_of_the_scale(label):
    """yes and weak_yes pass a positive control, weak_no and no a negative one; nothing else has golds."""
    assert RULE.passed(POSITIVE, label) is (label in (Label.YES, Label.WEAK_YES))
    assert RULE.passed(NEGATIVE, label) is (label in (Label.WEAK_NO, Label.NO))
    assert RULE.passed(NEGATIVE, None) is None
    with pytest.raises(ValueError, match="'repeat'"):
        RULE.passed(PairRole.REPEAT, label)


@settings(deadline=None)
@given(
    st.frozensets(st.sampled_from(list(Label)), min_size=1),
    st.frozensets(st.sampled_from(list(Label)), min_size=1),
    st.sampled_from([None, *Label]),
    st.sampled_from([None, *Label]),
)
def test_another_rule_decides_by_its_own_answers(positive, negative, on_positive, on_negative):
    """Whatever answers are configured, a page passes exactly where both controls got one of theirs."""
    rule = GoldRule(tuple(positive), tuple(negative))
    page = [on_page(POSITIVE, on_positive, 2), on_page(NEGATIVE, on_negative, 3)]

    passes = decide(check_assignment(page, rule)).decision is Decision.PASS

    assert passes == (on_positive in positive and on_negative in negative)


def test_the_rule_reads_in_words():
    """As the records of a review show it."""
    assert GoldRule((Label.YES,)).text == (
        "a gold positive passes with yes, a gold negative with weak no or no"
    )
    assert GoldRule(negative=(Label.WEAK_YES, Label.NO)).text == (
        "a gold positive passes with yes or weak yes, a gold negative with weak yes or no, so that whoever answers "
        "weak yes everywhere passes every page"
    )


def test_a_page_with_both_controls_right_passes():
    """Candidates on the page are not looked at."""
    page = [
        on_page(PairRole.CANDIDATE, None),
        on_page(POSITIVE, Label.WEAK_YES, 2),
        on_page(NEGATIVE, Label.NO, 3),
    ]

    assert decide(check_assignment(page, RULE)).decision is Decision.PASS
    assert check_assignment(page, RULE) == GoldCheck(passed=(gold(2), gold(3, NEGATIVE)))


@pytest.mark.parametrize(
    ("positive", "negative", "codes"),
    [
        (Label.NO, Label.NO, ["gold_positive_failed"]),
        (Label.YES, Label.WEAK_YES, ["gold_negative_failed"]),
        (Label.WEAK_NO, Label.YES, ["gold_positive_failed", "gold_negative_failed"]),
        (None, Label.NO, ["gold_missing"]),
        (Label.YES, None, ["gold_missing"]),
    ],
)
def test_a_page_with_a_wrong_or_skipped_control_goes_to_a_person(positive, negative, codes):
    """Every reason is told; a skipped control is neither passed nor failed."""
    page = [on_page(POSITIVE, positive, 2), on_page(NEGATIVE, negative, 3)]
    verdict = decide(check_assignment(page, RULE))

    assert verdict.decision is Decision.QUEUED
    assert [finding.code for finding in verdict.findings] == codes


def test_a_failed_control_that_was_withdrawn_is_forgiven():
    """The page then rests on its other control."""
    page = [on_page(POSITIVE, Label.NO, 2), on_page(NEGATIVE, Label.NO, 3)]

    assert decide(check_assignment(page, RULE, {gold(2)})).decision is Decision.PASS


def test_a_page_of_a_worker_of_bad_record_or_excluded_goes_to_a_person():
    """Though its own controls are right; without the record, the page's own rule decides."""
    check = check_assignment([on_page(POSITIVE, Label.YES, 2), on_page(NEGATIVE, Label.NO, 3)], RULE)

    assert decide(check, GoldRecord(4, 8)).findings == (Finding("bad_record", "passed 4 of 8 gold controls"),)
    assert decide(check, GoldRecord(8, 8), excluded=True).findings == (Finding("excluded_worker"),)
    assert decide(check, None).decision is Decision.PASS


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([None, *Label]), max_size=3),
    st.lists(st.sampled_from([None, *Label]), max_size=3),
)
def test_no_page_is_ever_rejected_by_rule(positives, negatives):
    """Whatever was answered, the rule passes or asks a person."""
    page = [on_page(POSITIVE, label, n) for n, label in enumerate(positives)]
    page += [on_page(NEGATIVE, label, n) for n, label in enumerate(negatives)]
    verdict = decide(check_assignment(page, RULE), GoldRecord(0, 20), excluded=True)

    assert verdict.decision in (Decision.PASS, Decision.QUEUED)


def test_four_of_four_is_exactly_a_good_record():
    """(4 + 1/2) / (4 + 1) is 9/10; three golds are too few to say anything."""
    assert GoldRecord(4, 4).mean == Fraction(9, 10)
    assert GoldRecord(4, 4).is_good
    assert not GoldRecord(3, 3).is_good
    assert not GoldRecord(12, 13).is_good
    assert GoldRecord(13, 14).is_good


@pytest.mark.parametrize(("golds", "failures"), [(4, 3), (8, 3), (9, 4), (14, 4), (15, 5), (40, 8)])
def test_a_record_is_bad_from_the_failures_that_the_rule_names(golds, failures):
    """At so many, not at one less; fewer than four answered controls say nothing, though all of them failed."""
    assert GoldRecord(golds - failures, golds).is_bad
    assert not GoldRecord(golds - failures + 1, golds).is_bad
    assert not GoldRecord(0, 3).is_bad


@settings(deadline=None)
@given(st.integers(0, 40), st.data())
def test_a_record_is_never_both_good_and_bad_nor_bad_for_one_failure(golds, data):
    """The two verdicts leave a middle ground between them."""
    record = GoldRecord(data.draw(st.integers(0, golds)), golds)

    assert not (record.is_good and record.is_bad)
    assert not (record.is_bad and record.golds - record.passes < 2)
    assert not (record.golds < 4 and (record.is_good or record.is_bad))


@pytest.mark.parametrize(
    ("positive", "negative", "low", "high"),
    [
        (0.5, 0.5, 0.81, 0.85),
        (0.98, 0.35, 0.43, 0.49),
        (0.94, 0.90, 0.0, 0.02),
        (0.961, 0.894, 0.003, 0.008),
        (0.99, 0.99, 0.0, 0.002),
    ],
    ids=["random", "yes-sayer", "hasty", "careful, some controls wrong", "careful"],
)
def test_after_five_pages_guessers_are_known_and_careful_workers_are_safe(positive, negative, low, high):
    """The shares of workers called bad, those of the docstring among them, from 20,000 workers of each kind."""
    rng = np.random.default_rng(0)
    passes = rng.binomial(5, positive, 20_000) + rng.binomial(5, negative, 20_000)
    share = np.mean([GoldRecord(int(count), 10).is_bad for count in passes])

    assert low <= share <= high


@functools.cache
def small_world(seed):
    """A world of 40 images, its original pairs, and the pairs that a ranking of every image holds, to depth 25."""
    world = generate(40, seed=seed)
    images, captions = list(world.scenes), list(world.captions)
    similar = -truth_matrix(world, images, captions) + np.random.default_rng(seed).normal(0, 0.6, (40, 200))
    best = np.argsort(-similar, axis=1)[:, :25]
    ids = np.array([int(id_) for id_ in captions])
    ranked = pack_pairs(Pair(int(images[row]), int(ids[column])) for row in range(40) for column in best[row])
    originals = [Pair(int(own.image_id), int(id_)) for id_, own in world.captions.items()]
    return world, originals, ranked


def usable_share(character, seed, *, pages):
    """The share of one worker's pages that count in a small world, as they come from the controls there."""
    world, originals, ranked = small_world(seed)
    ids = [int(id_) for id_ in world.captions]
    positives = gold_positives(originals, ratings={}, seed=seed)[:pages]
    negatives = gold_negatives(
        (range(1, 41), []), (range(1, 41), ids), ranked=ranked, known_positives=pack_pairs(originals), n=pages,
        seed=seed,
    )  # fmt: skip
    checks, met = [], []
    for page, pairs in enumerate(zip(positives, negatives, strict=True), 1):
        truths = {place: world.truth(str(p.image_id), str(p.caption_id)) for place, p in enumerate(pairs, 1)}
        given = answer_hit(PlayedHit(CHARACTERS[character], seed, "w", str(page)), truths, rationale=False)
        on = [
            Judgement(pairs[one.place - 1], "w", one.label, role=(POSITIVE, NEGATIVE)[one.place - 1])
            for one in given
        ]
        checks.append(check_assignment(on, RULE))
        met += [GoldAnswer("w", GoldControl(j.pair, j.role), RULE.passed(j.role, j.label)) for j in on]
    record = gold_records(met)["w"]
    any_pair = Judgement(Pair(1, 1), "w", Label.YES)
    return np.mean([is_usable(any_pair, decide(check, record).decision, record) for check in checks])


@pytest.mark.parametrize("pages", [2, 4, 8])
def test_in_small_worlds_a_careful_worker_is_not_lost_to_wrong_controls(pages):
    """In 40 worlds, where every tenth negative control is a match; and few of a guesser's pages count."""
    careful = [usable_share("careful", seed, pages=pages) for seed in range(40)]
    guesses = [usable_share("random", seed, pages=pages) for seed in range(40)]

    assert sum(share == 0 for share in careful) <= 1
    assert np.mean(careful) > 0.75
    assert np.mean(guesses) < {2: 0.35, 4: 0.2, 8: 0.08}[pages]


def test_a_record_counts_answered_and_trusted_controls_only():
    """Skipped and withdrawn controls neither help nor harm; the worker stays listed."""
    answers = [
        answer("A1", 1, passed=True),
        answer("A1", 2, passed=False),
        answer("A1", 3, passed=False, role=NEGATIVE),
        GoldAnswer("A2", gold(1), None),
    ]

    assert gold_records(answers, {gold(2)}) == {"A1": GoldRecord(1, 2), "A2": GoldRecord(0, 0)}


def test_a_control_that_two_good_workers_fail_is_withdrawn():
    """Their own failure there does not cost them the good record that counts against the control."""
    answers = [*spotless("A1", count=4), *spotless("A2", count=4)]
    answers += [answer("A1", 1, passed=False), answer("A2", 1, passed=False)]

    assert not gold_records(answers)["A1"].is_good
    assert withdrawn_golds(answers) == {gold(1)}
    assert gold_records(answers, {gold(1)})["A1"] == GoldRecord(4, 4)


@pytest.mark.parametrize(
    ("failing", "passing", "withdrawn"), [(1, 0, False), (2, 2, True), (2, 3, False), (3, 3, True)]
)
def test_a_control_stays_unless_two_and_half_of_the_good_workers_fail_it(failing, passing, withdrawn):
    """One failure may be a slip; a minority is the workers' fault."""
    workers = [f"A{n}" for n in range(failing + passing)]
    answers = list(itertools.chain.from_iterable(spotless(worker) for worker in workers))
    answers += [answer(worker, 1, passed=n >= failing) for n, worker in enumerate(workers)]

    assert withdrawn_golds(answers) == ({gold(1)} if withdrawn else set())


def test_careless_workers_cannot_withdraw_a_control():
    """Failing everything makes no good record, so it condemns no control."""
    answers = [answer(f"A{n}", number, passed=False) for n in range(5) for number in range(8)]

    assert withdrawn_golds(answers) == set()


def test_forgiving_one_control_can_convict_the_next():
    """Four workers share two wrong controls; the second goes once the first no longer spoils their records."""
    answers = [*spotless("A1", count=5), *spotless("A2", count=5), *spotless("A3", count=20)]
    answers += [*spotless("A4", count=20)]
    answers += [answer(worker, 1, passed=False) for worker in ("A1", "A3", "A4")]
    answers += [answer(worker, 2, passed=False) for worker in ("A1", "A2")]
    answers += [answer("A2", 1, passed=False)]

    assert withdrawn_golds(answers) == {gold(1), gold(2)}


@settings(deadline=None)
@given(st.data())
def test_withdrawal_does_not_depend_on_the_order_of_answers(data):
    """The same answers in another order withdraw the same controls."""
    cells = data.draw(
        st.dictionaries(
            st.tuples(st.sampled_from(["A1", "A2", "A3", "A4"]), st.integers(0, 9)),
            st.sampled_from([True, True, True, False]),
            max_size=40,
        )
    )
    answers = [answer(worker, number, passed=passed) for (worker, number), passed in cells.items()]

    assert withdrawn_golds(data.draw(st.permutations(answers))) == withdrawn_golds(answers)


@pytest.mark.parametrize(
    ("decision", "record", "usable"),
    [
        (Decision.PASS, GoldRecord(8, 8), True),
        (Decision.PASS, GoldRecord(4, 8), False),
        (Decision.PASS, GoldRecord(4, 6), True),
        (Decision.PASS, None, True),
        (Decision.APPROVE, GoldRecord(4, 8), True),
        (Decision.QUEUED, GoldRecord(8, 8), False),
        (Decision.DROP, None, False),
        (Decision.REJECT, None, False),
        (Decision.APPROVE_EXCLUDE, None, False),
        (Decision.NONE, None, False),
    ],
)
def test_answers_count_where_page_and_worker_are_trusted(decision, record, usable):
    """A bad record sets rule-passed pages aside; a person's approval stands."""
    judgement = Judgement(Pair(1, 1), "A1", Label.YES)

    assert is_usable(judgement, decision, record) is usable
    assert not is_usable(judgement, decision, record, excluded=True)


def test_a_pair_that_was_not_answered_does_not_count():
    """A skip is not an opinion."""
    judgement = Judgement(Pair(1, 1), "A1", None, outcome=Outcome.IMAGE_FAILED)

    assert not is_usable(judgement, Decision.PASS)
