"""What every strategy for pairs holds, and what each goes by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection_kit import choice, shuffled
from suite_kit import examples

from mitl.core.arrays import unpack_ids
from mitl.errors import RoundError, UsageError
from mitl.records.frames import frame
from mitl.records.rounds import CHOSEN
from mitl.selection import strategies as registry
from mitl.selection.choice import SelectionProblem, SideVectors, draws, highest
from mitl.selection.coreset import Spread
from mitl.selection.strategies import STRATEGIES, select

SPREADS = st.sampled_from([None, Spread(most=1), Spread(most=2, alike=0.5), Spread(alike=0.7)])
CHOICES = st.builds(
    choice,
    st.integers(0, 10_000),
    images=st.integers(1, 6),
    captions=st.integers(1, 8),
    depth=st.integers(1, 8),
    budget=st.integers(1, 40),
    closed=st.sampled_from([0.0, 0.3, 0.9]),
    is_alike=st.booleans(),
)


@pytest.mark.parametrize("name", STRATEGIES)
@given(given_=CHOICES, spread=SPREADS, other=st.integers(0, 99))
@settings(max_examples=examples(12, 30), deadline=None)
def test_open_pairs_alone_each_once_within_the_budget_whatever_the_order_of_rows(name, given_, spread, other):
    """Equal choices come out the same; the places count from 1; the frame has its schema."""
    chosen = select(name, given_, spread)
    again = select(name, shuffled(given_, other), spread)
    open_ = set(given_.pool.loc[given_.pool["open"], "pair"])

    pd.testing.assert_frame_equal(chosen, again)
    assert set(chosen["pair"]) <= open_
    assert chosen["pair"].is_unique
    assert len(chosen) <= given_.budget
    assert chosen["place"].tolist() == list(range(1, len(chosen) + 1))
    assert {column: str(dtype) for column, dtype in chosen.dtypes.items()} == {
        column: str(dtype) for column, dtype in frame(CHOSEN, dict.fromkeys(CHOSEN, ())).dtypes.items()
    }
    if spread is None and name != "exhaustive":
        assert len(chosen) == min(given_.budget, len(open_))


@pytest.mark.parametrize("name", STRATEGIES)
@given(given_=CHOICES, spread=SPREADS, less=st.integers(1, 40))
@settings(max_examples=examples(8, 15), deadline=None)
def test_a_smaller_budget_gives_the_head_of_a_larger_one(name, given_, spread, less):
    """Whatever the strategy, spread or not."""
    whole = select(name, given_, spread)
    head = select(name, replace(given_, budget=min(less, given_.budget)), spread)

    pd.testing.assert_frame_equal(head, whole.head(len(head)))


@pytest.mark.parametrize("name", STRATEGIES)
@given(given_=CHOICES, most=st.integers(1, 3))
@settings(max_examples=examples(8, 15), deadline=None)
def test_no_item_has_more_pairs_than_it_may(name, given_, most):
    """Of either side, and pairs are left out only for that."""
    chosen = select(name, given_, Spread(most=most))
    rest = set(select(name, replace(given_, budget=10_000))["pair"]) - set(chosen["pair"])
    counts = [pd.Series(ids).value_counts() for ids in unpack_ids(chosen["pair"].to_numpy())]

    assert all((count <= most).all() for count in counts)
    if len(chosen) < given_.budget:
        for pair in rest:
            sides = unpack_ids(np.array([pair]))
            assert any(count.get(int(ids[0]), 0) >= most for count, ids in zip(counts, sides, strict=True))


def of(pairs, probability, likeness=None, **more) -> SelectionProblem:
    """Open pairs that one annotator ranks one after the other."""
    first = choice()
    pool = first.pool.iloc[: len(pairs)].assign(
        pair=pairs, probability=probability, open=True, positive=False, negative=False
    )
    ranked = first.ranked.iloc[: len(pairs)].assign(
        pair=pairs, rank=range(1, len(pairs) + 1), similarity=-np.arange(len(pairs), dtype=float)
    )
    more = {"budget": 10, "seed": 0, **more}
    return SelectionProblem(pool, ranked, **more, **({} if likeness is None else {"likeness": likeness}))


def test_uncertainty_asks_what_is_nearest_to_one_half():
    """Entropy is 1 bit at one half and none at 0 and 1."""
    chosen = select("uncertainty", of([1, 2, 3, 4, 5], [0.0, 0.4, 0.5, 0.9, 1.0]))

    assert chosen["pair"].tolist()[:3] == [3, 2, 4]
    assert chosen["score"].tolist() == pytest.approx([1, 0.970951, 0.468996, 0, 0], abs=1e-6)


def test_expected_positives_are_per_cent():
    """The order is that of the probability, the score has the price in it."""
    chosen = select("expected", of([1, 2, 3], [0.2, 0.8, 0.5], cents=4.0))

    assert chosen["pair"].tolist() == [2, 3, 1]
    assert chosen["score"].tolist() == pytest.approx([0.2, 0.125, 0.05])


def test_a_pair_that_was_not_fused_has_the_mean_probability():
    """A new annotator's pairs are neither first nor last for that."""
    chosen = select("expected", of([1, 2, 3], [0.2, np.nan, 0.6]))

    assert chosen["pair"].tolist() == [3, 2, 1]
    assert chosen["score"].tolist() == pytest.approx([0.6, 0.4, 0.2])


@pytest.mark.parametrize("name", ["uncertainty", "expected", "doubts"])
def test_without_probabilities_one_line_says_what_to_do(name):
    """The others go on."""
    with pytest.raises(RoundError, match="run `mitl fuse`"):
        select(name, choice(is_fused=False))
    for other in set(STRATEGIES) - {"uncertainty", "expected", "doubts"}:
        assert len(select(other, choice(is_fused=False)))


def test_where_nobody_ranks_and_nothing_is_known_of_items_a_core_set_is_any_of_the_open_pairs():
    """All lie equally far apart; of no pair at all there is none."""
    given_ = choice()
    blind = replace(given_, ranked=given_.ranked.head(0), likeness=SideVectors())

    assert len(select("coreset", blind)) == min(given_.budget, len(given_.open_at))
    assert not len(select("coreset", replace(blind, pool=given_.pool.head(0))))


def test_the_exhaustive_strategy_asks_the_first_five_of_anybody_best_ranks_first():
    """What is ranked deeper is never asked."""
    given_ = choice(depth=8, images=12, captions=14, budget=10_000, closed=0.0)
    chosen = select("exhaustive", given_)
    best = given_.ranked.groupby("pair")["rank"].min()

    assert set(chosen["pair"]) == set(best[best <= 5].index) != set(best.index)
    assert (-chosen["score"]).tolist() == sorted(best[best <= 5])
    assert (-chosen["score"]).tolist() == best[chosen["pair"]].tolist()


def test_disagreement_needs_two_annotators():
    """One cannot disagree with itself."""
    with pytest.raises(RoundError, match="needs two annotators"):
        select("disagreement", of([1, 2, 3], [0.5, 0.5, 0.5]))


def test_disagreement_asks_what_one_has_first_and_another_does_not_list():
    """Two annotators agree on a pair's nearness but for one pair."""
    pairs = [1, 2, 3, 4]
    agreed = of(pairs, [0.5] * 4)
    other = agreed.ranked.assign(annotator="near", similarity=[0.0, -1.0, -2.0, 0.0], rank=[1, 3, 4, 2])
    both = pd.concat([agreed.ranked.assign(annotator="far"), other])
    both["annotator"] = both["annotator"].astype("category")

    assert select("disagreement", replace(agreed, ranked=both))["pair"].tolist()[0] == 4


def test_the_bandit_asks_more_of_who_found_matches():
    """One annotator's answers were all matches, the other's none."""
    given_ = choice(images=20, captions=30, depth=10, budget=60, closed=0.0)
    near = set(given_.ranked.loc[given_.ranked["annotator"] == "near", "pair"])
    far = set(given_.ranked.loc[given_.ranked["annotator"] == "far", "pair"])
    answered = given_.pool["pair"].isin(near ^ far) & (np.arange(len(given_.pool)) % 2 == 0)
    pool = given_.pool.assign(
        open=~answered,
        positive=answered & given_.pool["pair"].isin(near),
        negative=answered & given_.pool["pair"].isin(far),
    )
    chosen = select("bandit", replace(given_, pool=pool))

    assert chosen["pair"].isin(near).mean() > 0.9


def test_an_unknown_strategy_and_an_empty_budget_are_refused():
    """In one line each, with what there is."""
    with pytest.raises(UsageError, match="no strategy is called 'best'; choose one of exhaustive, random"):
        select("best", choice())
    with pytest.raises(RoundError, match="a round asks 1 at least"):
        choice(budget=0)
    with pytest.raises(RoundError, match="give 1 or more"):
        Spread(most=0)


def test_a_new_strategy_is_a_function_and_an_entry(monkeypatch):
    """It is spread and checked like the others."""

    def newest_first(given_: SelectionProblem) -> pd.DataFrame:
        return highest(given_, given_.pairs.astype(float), "newest-first")

    monkeypatch.setattr(registry, "STRATEGIES", {**STRATEGIES, "newest-first": newest_first})
    given_ = choice(budget=4)
    chosen = select("newest-first", given_)
    spread = select("newest-first", given_, Spread(most=1))

    assert chosen["pair"].tolist() == sorted(given_.pool.loc[given_.pool["open"], "pair"])[::-1][:4]
    assert unpack_ids(spread["pair"].to_numpy())[0].tolist() == sorted(
        set(unpack_ids(spread["pair"].to_numpy())[0].tolist()), reverse=True
    )
    assert set(chosen["strategy"]) == {"newest-first"}


def test_draws_are_uniform_and_of_each_thing_alone():
    """Means, and no change when others join."""
    drawn = draws(np.arange(100_000), 7, "test")

    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.005
    assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0, abs=0.02)
    assert draws(np.arange(50, 60), 7, "test").tolist() == drawn[50:60].tolist()
    assert draws(np.arange(3), 8, "test").tolist() != drawn[:3].tolist()
