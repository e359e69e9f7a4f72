"""What a pilot lets expect of further answers, on scores whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from mitl.audits.frontier import Frontier, Pilot, ResampledEstimate, estimate, share_left
from mitl.audits.thresholds import Tolerance
from mitl.errors import AuditError
from mitl.fusion.models import pilot_scores, rank_features

PAIRS, PREVALENCE, AUC = 8000, 0.45, 0.95


def world(seed: int, pairs: int = PAIRS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matches, probabilities that are ordered rightly and off by a scale and a shift, and queries of 20 pairs."""
    rng = np.random.default_rng(seed)
    apart = np.sqrt(2) * ndtri(AUC)
    matches = rng.random(pairs) < PREVALENCE
    score = rng.normal(size=pairs) + apart * matches
    log_odds = apart * score - apart**2 / 2 + np.log(PREVALENCE / (1 - PREVALENCE))
    return matches, 1 / (1 + np.exp(-(0.7 * log_odds + 0.4))), np.arange(pairs) // 20


def pilot_of(seed: int, answers: int, pairs: int = PAIRS) -> Pilot:
    matches, probabilities, queries = world(seed, pairs)
    answered = np.sort(np.random.default_rng(seed + 100).choice(pairs, answers, replace=False))
    weights = np.full(answers, pairs / answers)
    return Pilot(probabilities, answered, matches[answered], weights, queries[answered])


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    return estimate(pilot_of(1, 600), seed=3)


def test_a_large_pilot_finds_what_the_auc_says() -> None:
    """With 3,000 answers the estimate lies near the normal model that the scores were drawn from."""
    found = estimate(pilot_of(2, 3000, pairs=60_000), seed=0)

    assert found.auc.value == pytest.approx(AUC, abs=0.01)
    for lost, wrong in ((0.05, 0.01), (0.10, 0.05)):
        open_part = found.people(lost, wrong).value / found.open
        assert open_part == pytest.approx(share_left(AUC, lost, wrong, PREVALENCE), abs=0.05)


def test_intervals_know_that_open_pairs_turn_out_either_way() -> None:
    """Nine tenths are answered, so the chances are well known, and which of the other pairs match is not."""
    found = estimate(pilot_of(6, 7200), seed=0)
    chances = found.chances[0]

    spread = np.sqrt((found.pairs * chances * (1 - chances)).sum())
    assert 3 * spread < found.matches.high - found.matches.low < 6 * spread


@pytest.mark.thorough
@pytest.mark.parametrize("answers", [500, 7200])
def test_the_intervals_hold_the_truth_of_most_pilots(answers: int) -> None:
    """The recall that so many answers keep, over 40 pilots of worlds of their own."""
    held = []
    for seed in range(40):
        matches, probabilities, _ = world(seed)
        pilot = pilot_of(seed, answers)
        found = estimate(pilot, seed=seed, samples=120)
        # The truth: people alone, from the top, half of the open pairs.
        open_pairs = np.delete(np.arange(PAIRS), pilot.answered)
        order = open_pairs[np.argsort(-probabilities[open_pairs])]
        asked = len(order) // 2
        kept = (pilot.matches.sum() + matches[order[:asked]].sum()) / matches.sum()
        said = found.recall(np.array([float(asked)]), 0.0)[0]
        held.append(said.low - 0.0005 <= kept <= said.high + 0.0005)
    assert np.mean(held) >= 0.85


def test_more_answers_keep_more_and_more_tolerance_asks_for_less(frontier: Frontier) -> None:
    answers = np.linspace(0, frontier.open, 12)
    for wrong in (0.0, 0.01, 0.05):
        recalls = [one.value for one in frontier.recall(answers, wrong)]
        assert recalls == sorted(recalls)
        assert recalls[-1] == pytest.approx(1.0)
    assert frontier.people(0.05, 0.01).value < frontier.people(0.01, 0.01).value
    assert frontier.people(0.01, 0.05).value < frontier.people(0.01, 0.01).value
    assert frontier.people(0.0, 0.0).value == pytest.approx(frontier.open)


def test_recall_and_people_are_each_others_inverse(frontier: Frontier) -> None:
    for lost, wrong in ((0.02, 0.01), (0.1, 0.0), (0.2, 0.02)):
        answers = np.array([frontier.people(lost, wrong).value])
        assert frontier.recall(answers, wrong)[0].value == pytest.approx(1 - lost, abs=0.003)


def test_without_a_further_answer_the_known_matches_are_kept(frontier: Frontier) -> None:
    nothing, few = frontier.recall(np.array([0.0, 20.0]), 0.0)

    assert nothing.value == pytest.approx(frontier.known / frontier.matches.value, abs=0.001)
    assert few.value - nothing.value <= 20 / frontier.matches.value + 0.001


def test_labels_under_a_bound_ask_for_more_than_thresholds_that_are_known(frontier: Frontier) -> None:
    """A small sample gives none, a larger one lets more pairs be labelled; wrong ones stay within the bound."""
    tolerance = Tolerance(0.02, 0.05)
    assert frontier.labelling(200, tolerance) is None
    small, large = frontier.labelling(600, tolerance), frontier.labelling(1600, tolerance)
    assert small is not None
    assert large is not None
    assert small.labelled < large.labelled
    assert large.people.low <= large.people.value <= large.people.high
    assert large.wrong.value * frontier.matches.value + (1 - large.recall.value) * frontier.matches.value < (
        0.02 * frontier.open
    )


def test_labels_under_a_loose_bound_are_what_two_kinds_of_pairs_give() -> None:
    """1,000 open pairs at 98 % and 9,000 at 1 %: nine tenths of either are labelled, the sample being the rest."""
    no_answers = ResampledEstimate(0.9, 0.9, 0.9)
    of = Frontier(
        np.array([1000.0, 9000.0]), np.tile([0.98, 0.01], (3, 1)), no_answers, answered=60, known=50
    )
    found = of.labelling(1000, Tolerance(0.5, 0.05))
    assert found is not None

    lost, let_in, kept = 0.9 * 90, 0.9 * 20, 50 + 980 + 90 - 0.9 * 90
    assert found.labelled == pytest.approx(0.9)
    assert found.recall.value == pytest.approx(kept / (kept + lost))
    assert found.wrong.value == pytest.approx(let_in / kept)
    contradicted = 0.1 * (20 + 90)  # sampled pairs on which two more people answer
    assert found.people.value == pytest.approx(10_000 - 9_000 + 2 * contradicted)


def test_every_further_answer_keeps_a_little_more() -> None:
    """Within a step of the recalls that are looked at, too."""
    no_answers = ResampledEstimate(0.9, 0.9, 0.9)
    of = Frontier(np.array([1e6, 1e6]), np.tile([0.9, 0.1], (3, 1)), no_answers, answered=60, known=0)
    recall = [one.value for one in of.recall(np.array([1000.0, 1100.0, 1200.0]), 0.0)]
    assert recall == pytest.approx([0.0009, 0.00099, 0.00108])


def test_pairs_of_one_step_count_half_in_the_auc() -> None:
    """Two pairs a step, one a match and one not: the score tells them apart nowhere."""
    pairs = np.arange(2000)
    matches, queries = pairs % 2 == 0, pairs // 20
    found = estimate(Pilot(1 - pairs / 2000, pairs, matches, np.ones(2000), queries), seed=0, samples=20)
    assert found.auc.value == pytest.approx(0.5)


def test_the_same_pilot_and_seed_give_the_same_numbers() -> None:
    assert estimate(pilot_of(5, 300), seed=9).people(0.05, 0.01) == estimate(pilot_of(5, 300), seed=9).people(
        0.05, 0.01
    )


def test_an_answer_that_stands_for_many_weighs_as_many() -> None:
    """A pilot that asked the top twice as densely gives, weighted, the same expectation as a plain one."""
    matches, probabilities, queries = world(11)
    rng = np.random.default_rng(4)
    chance = np.where(probabilities > np.median(probabilities), 0.2, 0.05)
    answered = np.flatnonzero(rng.random(PAIRS) < chance)
    weighted = Pilot(probabilities, answered, matches[answered], 1 / chance[answered], queries[answered])
    found = estimate(weighted, seed=0)
    assert found.matches.low - 100 <= matches.sum() <= found.matches.high + 100
    assert found.auc.value == pytest.approx(AUC, abs=0.02)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"answered": slice(0, 30)}, "a plan needs 60 answered candidates, but there are 30"),
        ({"matches": True}, "people called 300 of 300 answered candidates a match"),
        ({"probabilities": 0.5}, "every candidate has the same score"),
    ],
)
def test_what_cannot_be_planned_from_is_one_line(change: dict[str, object], told: str) -> None:
    pilot = pilot_of(5, 300)
    part = change.get("answered", slice(None))
    matches = np.ones(300, bool) if "matches" in change else pilot.matches
    probabilities = np.full(PAIRS, 0.5) if "probabilities" in change else pilot.probabilities
    with pytest.raises(AuditError, match=told):
        estimate(
            Pilot(
                probabilities, pilot.answered[part], matches[part], pilot.weights[part], pilot.queries[part]
            ),
            seed=0,
        )


def test_an_estimate_lies_within_its_interval() -> None:
    one = ResampledEstimate.of(np.array([5.0, 1.0, 2.0, 3.0]))
    assert one.low <= one.value <= one.high


def test_scores_of_ranks_know_nothing_of_their_own_querys_answers() -> None:
    """Turning one query's answers round changes no probability of its own pairs."""
    rng = np.random.default_rng(0)
    queries = np.arange(600) // 6
    features = rng.normal(size=(600, 3))
    matches = rng.random(600) < 1 / (1 + np.exp(-2 * features[:, 0]))
    answered = np.arange(0, 600, 2)
    before = pilot_scores(features, queries, answered, matches[answered], seed=1)
    turned = matches.copy()
    turned[queries == 7] ^= True
    after = pilot_scores(features, queries, answered, turned[answered], seed=1)

    assert (before[queries == 7] == after[queries == 7]).all()
    assert (before != after).any()
    assert np.corrcoef(before, features[:, 0])[0, 1] > 0.9


def test_features_are_places_likenesses_and_how_many_list_a_pair() -> None:
    made = rank_features(
        np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1, 2, 4]), np.array([3.0, 1.0, 9.0]), 3
    )
    assert made[:, :2].tolist() == [[1.0, 0.25], [0.5, 0.0], [0.0, 0.0]]
    assert made[:, 4].tolist() == [2.0, 1.0, 0.0]
    assert made[:, 2].tolist() == [1.0, -1.0, 0.0]
