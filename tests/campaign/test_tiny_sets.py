"""Controls where a data set has so few that a page may ask about all that were drawn."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.campaign.kinds.pairs.planning import Campaign, make_plan
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.errors import PackingError
from mitl.records import Exclusion, ExclusionKind, HitItem, Pair, PairRole
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import expire


@pytest.fixture
def tiny(tmp_path) -> Settings:
    """Five images with 25 originals, 10 of them among the first 18 candidates."""
    settings = make_world(tmp_path / "p", n_images=5)
    run_propose(settings, image_queries=2, caption_queries=2)
    return settings


def planned(settings: Settings) -> list[HitItem]:
    """The one page that is due."""
    with open_database(settings.db_url, read_only=True) as session:
        (page,) = make_plan(session, settings, Campaign(SANDBOX, limit=18)).pages
    return page


def having(page: list[HitItem], role: PairRole) -> list[Pair]:
    return [item.pair for item in page if item.role is role]


def exclude_originals_but(settings: Settings, kept: Collection[Pair]) -> None:
    with open_database(settings.db_url) as session:
        dataset = item_store.dataset(session)
        own = [
            caption
            for caption in item_store.captions(session, dataset.id)
            if (caption.image_id, caption.id) not in kept
        ]
        entries = [Exclusion(ExclusionKind.PAIR, None, caption.external_id, "few", "test") for caption in own]
        item_store.add_exclusions(session, dataset.id, entries)
        session.commit()


def test_a_page_that_asks_about_the_controls_drawn_gets_others(tiny):
    """Three are drawn for one page; with some of these seeds it asks about all three."""
    for seed in range(12):
        page = planned(replace(tiny, seed=seed))
        assert not {*having(page, PairRole.GOLD_POSITIVE)} & {*having(page, PairRole.CANDIDATE)}


def test_a_hit_asked_again_keeps_its_control_only_where_there_is_no_other(tiny):
    """First any original may serve, then only those that the page asks and the control that it had."""
    page = planned(tiny)
    run_publish(tiny, limit=18)
    expire(tiny, [], SANDBOX)
    harvest(tiny, SANDBOX)
    had = having(page, PairRole.GOLD_POSITIVE)

    assert having(planned(tiny), PairRole.GOLD_POSITIVE) != had
    exclude_originals_but(tiny, [*had, *having(page, PairRole.CANDIDATE)])
    assert having(planned(tiny), PairRole.GOLD_POSITIVE) == had


def test_a_page_that_asks_about_every_original_is_refused_in_one_line(tiny):
    """No control could check it."""
    exclude_originals_but(tiny, having(planned(tiny), PairRole.CANDIDATE))

    with pytest.raises(
        PackingError, match=r"^one HIT asks every gold positive there is \(10\), so none is left"
    ):
        planned(tiny)


def test_no_control_serves_again_before_all_have(tiny):
    """Whoever works on several pages should meet none twice."""
    with open_database(tiny.db_url, read_only=True) as session:
        originals = item_store.originals(session, item_store.dataset(session).id)
    exclude_originals_but(tiny, originals[:5])
    for limit in range(1, 6):
        run_publish(tiny, limit=limit)

    with open_database(tiny.db_url, read_only=True) as session:
        use = hit_store.gold_use(session, SANDBOX)

    assert [use[pair] for pair in originals[:5]] == [1] * 5
