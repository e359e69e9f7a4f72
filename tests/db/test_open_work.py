"""What is open: a page that was asked again counts with the pages that it replaced, whatever became of these since."""

from __future__ import annotations

import pytest
from audit_kit import SANDBOX, add_page, some_pairs, submit
from sqlalchemy import text
from world_kit import make_world

from mitl.core.arrays import unpack_pairs
from mitl.db.session import open_database
from mitl.db.store import open_work
from mitl.records import Decision, Label, PairRole

YES, NO = Label.YES, Label.NO


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """The database of a project whose pairs nobody was asked yet."""
    return make_world(tmp_path_factory.mktemp("p"), n_images=12).db_url


@pytest.fixture
def session(url):
    """Nothing of a test stays in the database."""
    with open_database(url) as opened:
        yield opened


def ask_again(session, replaced, roles):
    """A HIT of one worker that replaces another HIT."""
    hit = add_page(session, roles)
    session.execute(text(f"UPDATE hit SET replaces_id = {replaced}, attempt = 2 WHERE id = {hit}"))
    return hit


def lose(session, *submissions):
    """As if a person had dropped them, or excluded their workers."""
    for id_ in submissions:
        session.execute(text(f"UPDATE judgement SET usable = false WHERE assignment_id = {id_}"))


def wanted(session):
    """HIT, workers and pairs of what is to be asked again."""
    return [
        (again.hit.id, again.missing, again.pairs) for again in open_work.hits_to_replace(session, SANDBOX)
    ]


def test_who_is_lost_after_a_page_was_asked_again_is_replaced_too(session):
    """Of three workers one is dropped and replaced; then another one's answers stop to count, on the first page."""
    first, second = some_pairs(session, 2).tolist()
    pairs = tuple(unpack_pairs(some_pairs(session, 2)))
    page = add_page(session, dict.fromkeys((first, second), PairRole.CANDIDATE), assignments=3)
    session.execute(text("UPDATE batch SET assignments = 3"))
    submit(session, page, "w1", [YES, NO], decision=Decision.DROP)
    lost = submit(session, page, "w2", [YES, NO])
    submit(session, page, "w3", [YES, NO])
    assert wanted(session) == [(page, 1, pairs)]
    again = ask_again(session, page, dict.fromkeys((first, second), PairRole.CANDIDATE))
    submit(session, again, "w4", [YES, NO])
    assert wanted(session) == []

    lose(session, lost)

    assert wanted(session) == [(again, 1, pairs)]


def test_a_second_opinion_that_is_lost_after_its_page_was_asked_again_is_replaced_too(session):
    """The pair whose second opinion stood is not on the new page; when it stands no more, it is asked again as well."""
    first, second = some_pairs(session, 2).tolist()
    submit(session, add_page(session, dict.fromkeys((first, second), PairRole.CANDIDATE)), "w1", [YES, NO])
    page = add_page(session, dict.fromkeys((first, second), PairRole.OVERLAP))
    kept = submit(session, page, "w2", [None, NO])
    submit(session, ask_again(session, page, {first: PairRole.OVERLAP}), "w3", [YES])
    assert wanted(session) == []

    lose(session, kept)

    ((_, missing, pairs),) = wanted(session)
    assert (missing, pairs) == (1, tuple(unpack_pairs(some_pairs(session, 2)[1:])))
