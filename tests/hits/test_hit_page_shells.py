"""What was really posted tells no worker which pairs are gold controls."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from typing import NamedTuple

import defusedxml.ElementTree
import pytest
from books import server_rows
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.db.session import open_database
from mitl.db.store import hits, items
from mitl.records import HitState, PairRole


class Posted(NamedTuple):
    """One pair as it was posted."""

    role: PairRole
    place: int
    section: str
    caption: str


@pytest.fixture(scope="module", params=["pairs-plain", "pairs-rationale"])
def posted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Posted]:
    """Every pair of a published batch, read back from the crowd server's database."""
    settings = make_world(tmp_path_factory.mktemp("shells") / "p")
    run_propose(settings, image_queries=20, caption_queries=20)
    run_publish(settings, template=request.param)
    xml = dict(
        server_rows(settings, "SELECT h.mturk_id, q.xml FROM hit h JOIN hit_question q ON q.hit_id = h.id")
    )
    found = []
    with open_database(settings.db_url, read_only=True) as session:
        captions = {item.id: item.text for item in items.captions(session, items.dataset(session).id)}
        rows = hits.hits(session, SANDBOX, [HitState.POSTED])
        pages = hits.hit_items(session, [row.id for row in rows])
        for row in rows:
            page = defusedxml.ElementTree.fromstring(xml[row.mturk_hit_id])[0].text or ""
            sections = re.findall(r"<section.*?</section>", page, re.DOTALL)
            for item, section in zip(pages[row.id], sections, strict=True):
                found.append(Posted(item.role, item.place, section, captions[item.pair.caption_id]))
    return found


def test_controls_and_candidates_have_the_same_shell_byte_by_byte(posted: list[Posted]) -> None:
    """After image address, description and place are masked, one text is left for all roles."""
    shells = defaultdict(set)
    for pair in posted:
        own = rf"\bp{pair.place:02d}(?=[_ >])|(?:(?<=Pair )|(?<=Image )){pair.place}\b"
        shell = pair.section.replace(html.escape(pair.caption), "CAPTION", 1)
        shell = re.sub(r'(?<=src=")[^"]+', "SRC", shell)
        shells[pair.role].add(re.sub(own, "PLACE", shell))

    assert {PairRole.CANDIDATE, PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE} <= set(shells)
    assert len(set.union(*shells.values())) == 1
    assert "CAPTION" in set.union(*shells.values()).pop()


def test_the_description_is_text_and_nothing_else(posted: list[Posted]) -> None:
    """It is in no attribute; images are named by digits that tell nothing, all of one length."""
    for pair in posted:
        tags = "".join(re.findall(r"<[^>]*>", pair.section))
        assert pair.caption not in html.unescape(tags)
        assert re.search(rf'<img src="/i/[0-9a-f]{{32}}\.jpg" alt="Image {pair.place}" ', pair.section)


def test_controls_stand_anywhere(posted: list[Posted]) -> None:
    """Their places differ from HIT to HIT, on both halves of the page."""
    places = {pair.place for pair in posted if pair.role in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)}

    assert min(places) <= 10 < max(places)
    assert len(places) > 3
