"""What a project offers to a strategy, and what is chosen of it: open pairs alone, within the budget, ever the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fused_kit import quickest  # noqa: F401 - in the whole module
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from suite_kit import examples
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.core.arrays import contains, distinct, pack_pairs, unpack_ids
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits, open_work
from mitl.errors import RoundError, UsageError
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.records import AuditPurpose
from mitl.records.rounds import CHOSEN, DOUBTS
from mitl.selection.coreset import Spread
from mitl.selection.strategies import STRATEGIES
from mitl.settings import Settings
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.fusing.fuse import fuse
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.rounds.choosing import ChoiceOptions, choice_of, choose


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project of which a part is answered and fused, a part is out, and a part is drawn for machine labels."""
    settings = make_world(tmp_path_factory.mktemp("choosing") / "p")
    run_propose(settings, image_queries=20, caption_queries=40)
    run_publish(settings, limit=180)
    simulate(settings, SANDBOX, population="careful")
    harvest(settings, SANDBOX)
    fuse(settings, SANDBOX)
    draw_audit(settings, AuditRequest(AuditPurpose.LABELS, 20), SANDBOX)
    run_publish(settings, limit=60)  # the sample and 40 more
    return settings


@pytest.fixture(scope="module")
def context(settings: Settings):
    with open_context(settings, SANDBOX, read_only=True) as opened:
        yield opened


def closed(context: Context) -> np.ndarray:
    """What is answered, out or in the sample for machine labels; packed, ascending."""
    session = context.session
    asked = open_work.asked_pairs(session, SANDBOX)
    sampled = audits.drawn_for_labels(session, SANDBOX)
    assert open_work.live_pairs(session, SANDBOX) and open_work.usable_workers(session, SANDBOX) and sampled
    return distinct(pack_pairs({*asked, *sampled}))


@given(
    name=st.sampled_from([name for name in STRATEGIES if name not in ("coreset", DOUBTS)]),
    budget=st.integers(CANDIDATES_PER_HIT, 400),
    seed=st.integers(0, 9),
)
@limits(max_examples=examples(5, 8))
def test_open_pairs_alone_each_once_within_the_budget_and_the_same_again(context, name, budget, seed):
    """Whatever the strategy; and a smaller budget gives the head of what a larger one gives."""
    chosen = choose(context, name, budget, seed)
    fewer = choose(context, name, CANDIDATES_PER_HIT, seed)

    pairs = chosen["pair"].to_numpy()
    assert 0 < len(pairs) <= budget and len(distinct(pairs)) == len(pairs)
    assert not contains(closed(context), pairs).any()
    assert chosen["place"].tolist() == list(range(1, len(pairs) + 1)) and list(chosen) == list(CHOSEN)
    pd.testing.assert_frame_equal(chosen, choose(context, name, budget, seed))
    pd.testing.assert_frame_equal(fewer, chosen.head(CANDIDATES_PER_HIT))


@pytest.mark.parametrize("name", ["expected", "random", "coreset"])
@pytest.mark.parametrize("most", [1, 2])
def test_an_item_has_no_more_pairs_than_the_spread_allows(context, name, most):
    """Of images and of captions, in what is chosen."""
    chosen = choose(context, name, 60, 0, ChoiceOptions(spread=Spread(most=most)))

    for side in unpack_ids(chosen["pair"].to_numpy()):
        assert np.unique(side, return_counts=True)[1].max() <= most


def test_the_seed_decides_what_chance_chooses(context):
    """The strategy that goes by chance alone chooses otherwise with another seed."""
    first, second = (choose(context, "random", 40, seed)["pair"].tolist() for seed in (1, 2))

    assert set(first) != set(second)


def test_pairs_cost_what_a_hit_costs_as_it_will_be_published(context):
    """And not what it cost in the wording of the latest batch; twice the price halves what is expected per cent."""
    cheap, dear = (
        choice_of(context, 30, 0, ChoiceOptions(hit_cents=cents), needs_likeness=False) for cents in (90, 180)
    )
    half, whole = (choose(context, "expected", 30, 0, ChoiceOptions(hit_cents=cents)) for cents in (180, 90))

    assert (cheap.cents, dear.cents) == (90 / CANDIDATES_PER_HIT, 180 / CANDIDATES_PER_HIT)
    assert half["pair"].tolist() == whole["pair"].tolist()
    np.testing.assert_allclose(2 * half["score"], whole["score"])


def test_only_ranks_that_are_wanted_are_offered(context):
    """The pool is what the rankings hold down to the deepest rank."""
    shallow = choice_of(context, 30, 0, ChoiceOptions(deepest=1), needs_likeness=False)
    whole = choice_of(context, 30, 0, ChoiceOptions(), needs_likeness=False)

    assert shallow.ranked["rank"].max() == 1
    assert set(shallow.pairs.tolist()) < set(whole.pairs.tolist())


def test_what_cannot_be_chosen_is_one_line(context, settings: Settings, tmp_path: Path):
    """A budget below one HIT, an unknown strategy, nothing fused, nothing left."""
    with pytest.raises(RoundError, match=f"17 pairs, below one HIT, which asks {CANDIDATES_PER_HIT}"):
        choose(context, "random", 17, 0)
    with pytest.raises(UsageError, match="choose one of"):
        choose(context, "luck", 30, 0)

    fresh = make_world(tmp_path / "p", n_images=12)
    run_propose(fresh, image_queries=2, caption_queries=2)
    with open_context(fresh, SANDBOX, read_only=True) as opened, pytest.raises(RoundError, match="mitl fuse"):
        choose(opened, "expected", 30, 0)
    with open_context(fresh, SANDBOX, read_only=True) as opened:
        ranked = choice_of(opened, 30, 0, ChoiceOptions(deepest=5), needs_likeness=False).pairs
    run_publish(fresh)
    none = rf"none of {len(ranked)} ranked pairs within 5 ranks is open: .*; choose among more ranks, propose"
    with open_context(fresh, SANDBOX, read_only=True) as opened, pytest.raises(RoundError, match=none):
        choose(opened, "random", 30, 0, ChoiceOptions(deepest=5))
