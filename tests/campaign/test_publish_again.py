"""Pages that ask again: nobody is paid for an answer there that would not count."""

from __future__ import annotations

import prefer_kit
import similarity_kit
from harvest_kit import in_pipeline
from publish_kit import SamePeople, bill, kept_off, proposed
from sqlalchemy import text
from world_kit import SANDBOX, run_publish

from mitl.campaign.kinds import protocol
from mitl.campaign.kinds.similarity.planning import RatePairs
from mitl.db.session import open_database
from mitl.db.store import open_work
from mitl.settings import Settings


def test_a_page_that_lacks_one_of_two_workers_is_not_offered_to_the_other(tmp_path):
    """Whose answers count already; a third gives what it lacks, and the pairs have the two workers they want."""
    settings = proposed(tmp_path / "p")
    run_publish(settings, limit=36, assignments=2)
    crowd = SamePeople(settings)
    crowd.join(1, "random")
    crowd.join(1)
    assert crowd.work() == 4
    crowd.people.pop(0)

    again = run_publish(settings, limit=36)

    assert again.counts["hits_again"] == again.counts["hits_kept_off"] == 2
    assert (again.counts["met_questions"], again.counts["people_left"]) == (36, 0)
    assert crowd.work() == 0
    crowd.join(1)
    assert crowd.work() == 2
    with open_database(settings.db_url, read_only=True) as session:
        assert set(open_work.usable_workers(session, SANDBOX).values()) == {2}


def test_a_second_opinion_that_the_first_worker_gave_is_asked_of_others(tmp_path):
    """One person takes a page and its second opinion too; when that is asked again, it waits for somebody else."""
    settings = proposed(tmp_path / "p")
    run_publish(settings, limit=18, overlap=1.0)
    crowd = SamePeople(settings)
    crowd.join(1)
    assert crowd.work() == 2

    again = run_publish(settings, limit=18)

    assert again.counts["hits_again"] == again.counts["hits_kept_off"] == 1
    assert crowd.work() == 0
    crowd.join(1)
    assert crowd.work() == 1
    with open_database(settings.db_url, read_only=True) as session:
        assert set(open_work.usable_workers(session, SANDBOX).values()) == {2}


def test_raters_of_a_page_are_different_people(tmp_path):
    """Where one of five is lost, the four others are not offered the page that asks for another."""
    settings = similarity_kit.rated(tmp_path / "p")
    in_pipeline(settings, "UPDATE worker SET excluded_at = CURRENT_TIMESTAMP WHERE id = 2")

    lines = bill(settings, RatePairs(SANDBOX, "sts"))
    again = similarity_kit.run_rate(settings)

    assert again.counts["hits_again"] == 3
    assert "3 HITs are not offered" in "\n".join(lines)
    assert kept_off(settings) == [others(settings, 2)] * 3


def test_a_page_of_a_study_is_not_offered_to_those_who_compared_before(tmp_path):
    """Whoever's submission was dropped may try again: only answers that count keep people away."""
    settings = prefer_kit.answered(tmp_path / "p")
    in_pipeline(settings, "UPDATE assignment SET decision = 'drop' WHERE id = 1")

    lines = bill(settings, prefer_kit.study(settings))
    again = prefer_kit.run_study(settings)

    assert again.counts["hits_again"] == 1
    assert "1 HIT is not offered" in "\n".join(lines)
    with open_database(settings.db_url, read_only=True) as session:
        query = "SELECT mturk_worker_id FROM worker w JOIN assignment a ON a.worker_id = w.id WHERE a.id <> 1 AND "
        same = "a.hit_id = (SELECT hit_id FROM assignment WHERE id = 1)"
        assert kept_off(settings) == [set(session.scalars(text(query + same)))] != [set()]


def test_of_many_sets_of_people_those_are_kept_off_that_save_most():
    """Each is a group of HITs more for workers to choose among; a page with a question for all is offered to all."""
    a, *rest = [frozenset({f"w{number}"}) for number in range(40)]
    pages = [[who, who] for who in rest] + [[a, a]] * 2 + [[a, frozenset()], []]

    off = protocol.kept_off(pages)

    assert off[-4:] == [a, a, frozenset(), frozenset()]
    assert [bool(who) for who in off[:-4]] == [True] * 29 + [False] * 10
    assert all(who in (set(), page[0]) for who, page in zip(off[:-1], pages[:-1], strict=True))


def others(settings: Settings, worker: int) -> set[str]:
    with open_database(settings.db_url, read_only=True) as session:
        return set(session.scalars(text(f"SELECT mturk_worker_id FROM worker WHERE id <> {worker}")))
