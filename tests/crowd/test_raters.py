"""How scripted workers rate likeness: around the truth, each in their own way, and again alike."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.crowd.populations import CHARACTERS, Character, PlayedHit
from mitl.crowd.raters import HABITS, SECONDS, LikenessTruth, answer_ratings, rater
from mitl.records import Outcome
from mitl.records.similarity import Likeness

SCORES = [0.0, 0.7, 1.6, 2.5, 3.3, 4.1, 4.8, 5.0]
LOOKING = [name for name in HABITS if name not in ("random", "one-number", "straight-liner")]


def page(scores: list[float] = SCORES, *, task: Likeness = Likeness.STS, start: int = 0):
    """A HIT's truth; pairs are named by their place in the study."""
    return {n: LikenessTruth(s, task, f"pair {start + n}") for n, s in enumerate(scores, start=1)}


def ratings(character: str, truths, *, seed: int = 0, worker: str = "w1", hit: str = "h1", turn: int = 0):
    return answer_ratings(PlayedHit(CHARACTERS[character], seed, worker, hit, turn), truths)


def scores(character: str, truths, **who) -> list[float]:
    return [given.score for given in ratings(character, truths, **who)]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(HABITS)), st.lists(st.floats(0, 5), min_size=1, max_size=12), st.integers(0, 10**6)
)
def test_every_rating_stands_on_the_scale(character, truth, seed):
    """From 0.00 to 5.00 in steps of 0.01, at each place once, in rising order, with a time."""
    given_ratings = ratings(character, page(truth), seed=seed)

    assert [given.place for given in given_ratings] == list(range(1, len(truth) + 1))
    for rating in given_ratings:
        assert rating.outcome is Outcome.ANSWERED and rating.active_ms >= 200
        assert 0 <= rating.score <= 5 and float(f"{rating.score:.2f}") == rating.score


def test_ratings_depend_on_seed_worker_and_hit_alone():
    """A resumed simulation repeats itself, in whatever order places come; another seed, worker or HIT differs."""
    truths = page()
    first = ratings("hasty", truths)

    assert ratings("hasty", dict(reversed(truths.items()))) == first
    assert first != ratings("hasty", truths, seed=1)
    assert first != ratings("hasty", truths, worker="w2")
    assert first != ratings("hasty", truths, hit="h2")


def test_careful_raters_come_close_and_more_of_them_closer():
    """A careful rater is off by some 0.4 points in the middle; the mean of forty by less than 0.2, with no lean."""
    truths = page([2.5] * 10)
    each = [scores("careful", truths, worker=f"w{n}") for n in range(40)]
    off = [abs(score - 2.5) for given in each for score in given]
    means = [statistics.fmean(column) for column in zip(*each, strict=True)]

    assert 0.25 < statistics.fmean(off) < 0.6
    assert all(abs(mean - 2.5) < 0.25 for mean in means)
    assert statistics.fmean(means) == pytest.approx(2.5, abs=0.12)


def test_there_is_less_doubt_at_the_ends_of_the_scale():
    """What is the same, or has nothing in common, is rated more alike than what lies between."""

    def spread(score: float) -> float:
        given = [scores("careful", page([score] * 10), worker=f"w{n}") for n in range(40)]
        return statistics.median(statistics.stdev(one) for one in given)

    assert spread(0.5) < spread(2.5) and spread(4.5) < spread(2.5)


def test_a_pair_that_comes_again_gets_nearly_the_same_rating():
    """A rater's view of a pair is their own and stays; of two pairs as like as each other they think differently."""
    off_again, off_other = [], []
    for n in range(60):
        truths = page([2.5] * 10)
        again = {place: truths[place] for place in range(1, 11)}
        first = scores("careful", truths, worker=f"w{n}")
        second = scores("careful", again, worker=f"w{n}", hit="another")
        off_again += [abs(a - b) for a, b in zip(first, second, strict=True)]
        off_other += [abs(a - b) for a, b in zip(first, second[1:], strict=False)]

    assert statistics.median(off_again) < 0.2 < 0.3 < statistics.median(off_other)
    # What the rule of a repeated control allows: within a point.
    assert sum(off <= 1 for off in off_again) / len(off_again) > 0.95


def test_offsets_and_scales_are_the_workers_own():
    """The same on every HIT; careful raters' offsets are small, a yes-sayer's lie high and their scale is narrow."""
    careful = [rater(CHARACTERS["careful"], seed=0, worker=f"w{n}") for n in range(300)]
    yes = [rater(CHARACTERS["yes-sayer"], seed=0, worker=f"w{n}") for n in range(300)]

    assert statistics.stdev(one.offset for one in careful) == pytest.approx(0.25, rel=0.15)
    assert statistics.fmean(one.offset for one in yes) == pytest.approx(1.2, abs=0.1)
    assert (
        statistics.fmean(one.scale for one in yes) < 0.6 < 0.95 < statistics.fmean(o.scale for o in careful)
    )
    assert careful[0] == rater(CHARACTERS["careful"], seed=0, worker="w0") != careful[1]


@pytest.mark.parametrize("character", LOOKING)
def test_who_looks_gives_more_to_what_is_more_alike(character):
    """On a page of all degrees, means over forty of them rise with the truth."""
    given = [scores(character, page(), worker=f"w{n}") for n in range(60)]
    means = [statistics.fmean(column) for column in zip(*given, strict=True)]

    assert means[0] < means[2] < means[4] < means[6]


def test_who_does_not_look_is_known_by_it():
    """One number always, one number a page, or any number; none of them has to do with the truth."""
    truths = page([0.0, 5.0] * 5)
    one = [scores("one-number", truths, hit=f"h{n}") for n in range(5)]
    line = [scores("straight-liner", truths, hit=f"h{n}") for n in range(5)]
    anything = [scores("random", truths, hit=f"h{n}") for n in range(40)]

    assert statistics.pstdev(score for hit in one for score in hit) < 0.1
    assert max(statistics.pstdev(hit) for hit in line) < 0.1 < statistics.pstdev(hit[0] for hit in line)
    even, odd = (statistics.fmean(s for hit in anything for s in hit[side::2]) for side in (0, 1))
    assert even == pytest.approx(odd, abs=0.5) and even == pytest.approx(2.5, abs=0.4)


def test_a_drifter_leaves_the_truth_from_hit_to_hit():
    """The tenth HIT of equal pairs is rated far from the first, by each to one side; careful raters stay."""

    def gap(character: str, worker: str) -> float:
        first, last = (
            scores(character, page([2.5] * 10), worker=worker, hit=f"h{n}", turn=n) for n in (0, 9)
        )
        return abs(statistics.fmean(last) - statistics.fmean(first))

    gaps = {name: [gap(name, f"w{n}") for n in range(40)] for name in ("drifter", "careful")}
    assert statistics.median(gaps["careful"]) < 0.2 < 1.5 < statistics.median(gaps["drifter"])


@pytest.mark.parametrize("task", Likeness)
def test_careful_raters_take_the_time_of_the_task(task):
    """As long as CxC's raters took; who does not look is faster."""
    truths = page([2.5] * 600, task=task)

    def median(character: str) -> float:
        return statistics.median(given.active_ms for given in ratings(character, truths))

    assert median("careful") == pytest.approx(1000 * SECONDS[task], rel=0.1)
    assert median("careful") > 3 * median("one-number")


def test_a_character_without_habits_of_its_own_rates_carefully():
    """Characters that others add answer pages of every kind."""
    own = Character("somebody", ((0.25,) * 4,) * 4, reads=1.0, seconds_per_pair=9.0)

    given = answer_ratings(PlayedHit(own, 0, "w1", "h1"), page())

    assert [one.score for one in given] == scores("careful", page())
