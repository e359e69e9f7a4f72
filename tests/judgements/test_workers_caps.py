"""Caps on the HITs of one worker: whoever has done them is offered no more, and what they did counts."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import pytest
from harvest_kit import on_server
from sqlalchemy import text
from sqlalchemy.orm import Session
from world_kit import SANDBOX, copy_of, make_world, run_propose, run_publish

from mitl.crowd.client import MTurkClient, exclusion_qualification
from mitl.crowd.context import Context
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.paying import EXCLUDE
from mitl.db.models import Assignment, Dataset, Hit, Worker
from mitl.db.session import open_database
from mitl.db.store import answers, hits, journal
from mitl.records import Decision, HitState, IdKind, JournalState
from mitl.settings import Settings
from mitl.stages.harvesting.caps import cap_workers, due_caps
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reviewing.workers import workers

CAP = 3
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project whose HITs are answered by one worker of three HITs and one of two, and not harvested."""
    settings = make_world(tmp_path_factory.mktemp("caps") / "answered", n_images=40)
    run_propose(settings)
    run_publish(settings)
    simulate(settings, SANDBOX, hits_per_worker=CAP, max_hits=2 * CAP - 1)
    return settings


@pytest.fixture(scope="module")
def harvested(answered: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A copy of it, harvested without any cap."""
    settings = copy_of(answered, tmp_path_factory.mktemp("caps") / "harvested")
    harvest(settings, SANDBOX)
    return settings


@dataclass
class Study:
    """A harvested project and its server."""

    settings: Settings
    session: Session
    client: MTurkClient

    def cap(self, most: int | None = CAP) -> int:
        """What a harvest under such a cap does about it."""
        settings = replace(self.settings, max_hits_per_worker=most)
        return cap_workers(Context(self.session, settings, SANDBOX), self.client)[0]

    @property
    def loads(self) -> dict[str, answers.WorkerLoad]:
        """By worker."""
        return {load.worker: load for load in answers.worker_loads(self.session, SANDBOX)}

    @property
    def capped(self) -> set[str]:
        """Whom the database has as capped."""
        return {worker for worker, load in self.loads.items() if load.capped}

    @property
    def busy(self) -> set[str]:
        """Who has done as many HITs as one may: some, and not all."""
        found = {worker for worker, load in self.loads.items() if load.hits >= CAP}
        assert set() < found < set(self.loads)
        return found

    @property
    def holding(self) -> set[str]:
        """Who holds the exclusion qualification on the server."""
        kind = exclusion_qualification(self.client, self.settings.project_id)
        wanted = {"QualificationTypeId": kind, "Status": "Granted"}
        names = itemgetter("WorkerId")
        return set(
            self.client._pages("list_workers_with_qualification_type", "Qualifications", names, **wanted)
        )

    @property
    def calls(self) -> dict[str, str]:
        """The journalled calls about qualifications with their states."""
        rows = self.session.execute(text("SELECT key, state FROM journal WHERE kind = 'qualification'"))
        return dict(rows.all())

    def change(self, statement: str) -> None:
        """Leave the database as a killed run would."""
        self.session.execute(text(statement))
        self.session.commit()


@pytest.fixture
def study(harvested: Settings, tmp_path: Path) -> Iterator[Study]:
    settings = copy_of(harvested, tmp_path / "p")
    with open_endpoint(settings, SANDBOX) as endpoint, open_database(settings.db_url) as session:
        yield Study(settings, session, endpoint.client())


def test_a_harvest_caps_whoever_has_done_enough_and_their_answers_count(answered, harvested, tmp_path):
    """As many judgements may be used as without a cap; a second harvest has nothing to do."""
    settings = replace(copy_of(answered, tmp_path / "p"), max_hits_per_worker=CAP)

    harvest(settings, SANDBOX)

    found = workers(settings, SANDBOX)
    capped = {row["worker"]: row["submitted"] for row in found.counts["rows"] if row["capped"]}
    assert list(capped.values()) == [CAP]
    assert f"at most {CAP} HITs a worker: 1 have done them and are offered no more" in found.lines
    assert n_usable(settings) == n_usable(harvested) > 0
    assert harvest(settings, SANDBOX).status == "nothing_to_do"


def test_a_cap_is_set_also_where_the_server_has_no_hit_any_more(harvested, tmp_path):
    """The study goes on with other HITs, from which whoever has done enough is to be kept."""
    settings = replace(copy_of(harvested, tmp_path / "p"), max_hits_per_worker=CAP)
    with open_database(settings.db_url) as session:
        session.execute(text("UPDATE hit SET state = 'closed', mturk_hit_id = NULL"))
        session.commit()

    assert harvest(settings, SANDBOX).counts["capped"] == 1


def test_a_worker_whom_the_server_refuses_to_keep_away_holds_up_no_harvest(harvested, tmp_path):
    """It is told once and tried by each harvest, and the caps of others are set."""
    settings = replace(copy_of(harvested, tmp_path / "p"), max_hits_per_worker=1)  # which both have done
    name = "UPDATE worker SET mturk_id = {} WHERE id = (SELECT min(worker_id) FROM assignment)"
    on_server(settings, name.format("'X' || mturk_id"))
    first, second = harvest(settings, SANDBOX), harvest(settings, SANDBOX)

    assert first.counts["capped"] == 1
    assert [w for w in first.warnings if "cannot be set; each harvest tries again" in w] == list(
        first.warnings
    )
    assert (second.status, second.warnings) == ("nothing_to_do", ())
    on_server(settings, name.format("substr(mturk_id, 2)"))
    assert harvest(settings, SANDBOX).counts["capped"] == 1


def n_usable(settings: Settings) -> int:
    with open_database(settings.db_url, read_only=True) as session:
        return session.scalar(text("SELECT count(*) FROM judgement WHERE usable")) or 0


def test_server_database_and_journal_agree_on_who_is_capped(study):
    """Each call is journalled once; again, nothing is to do."""
    first = study.busy

    assert study.cap() == len(first)
    assert study.cap() == 0
    assert study.capped == study.holding == first
    assert study.calls == {f"cap:sandbox:{worker}": "done" for worker in first}


@pytest.mark.parametrize("most", [CAP + 1, None], ids=["raised", "without a cap"])
def test_raising_the_cap_lets_workers_in_again_and_lowering_it_caps_them_anew(study, most):
    """Each turn is a call of its own in the journal, and the server follows each time."""
    first = study.busy
    study.cap()

    study.cap(most)
    assert study.capped == study.holding == set()
    study.cap()

    assert study.capped == study.holding == first
    turns = ("cap:sandbox:{}", "uncap:sandbox:{}", "cap:sandbox:{}:2")
    assert set(study.calls) == {turn.format(worker) for worker in first for turn in turns}


@pytest.mark.parametrize("most", [CAP, None], ids=["still capped", "raised meanwhile"])
def test_a_grant_whose_reply_was_lost_is_finished_or_taken_back(study, most):
    """The journal has it as being sent, the server holds it, and the worker's row knows nothing."""
    first = study.busy
    study.cap()
    study.change("UPDATE worker SET capped_at = NULL")
    study.change("UPDATE journal SET state = 'sending' WHERE key LIKE 'cap:%'")

    study.cap(most)

    assert study.capped == study.holding == (first if most else set())


@pytest.mark.parametrize("most", [CAP, None], ids=["lowered meanwhile", "still raised"])
def test_a_grant_that_was_half_taken_back_is_taken_back_and_given_anew_where_it_is_due(study, most):
    """The server has lost it though the worker's row says capped; afterwards both agree."""
    first = study.busy
    study.cap()
    study.cap(None)
    for worker in first:
        answers.set_capped(study.session, study.loads[worker].id, NOW)
    study.change("UPDATE journal SET state = 'sending' WHERE key LIKE 'uncap:%'")

    study.cap(most)

    assert study.capped == study.holding == (first if most else set())


def test_an_excluded_worker_keeps_the_qualification_when_the_cap_is_raised(study):
    """It is the same one, and exclusion is for good."""
    study.cap()
    [worker] = study.busy
    answers.exclude_worker(study.session, study.loads[worker].id, "test", NOW)
    study.session.commit()

    study.cap(None)

    assert study.holding == {worker}


def test_both_engines_count_and_cap_alike(project_url):
    """Due is who has two HITs of the crowd: not one, not excluded, not by past work from a file; and once."""
    settings = Settings(Path(), project_url, "", "p", max_hits_per_worker=2)
    with open_database(project_url, create=True) as session:
        _add_work(session)
        session.commit()
        [due] = due_caps(Context(session, settings, SANDBOX))
        assert (due.load.worker, due.load.hits, due.capped) == ("A1", 2, True)

        key = due.key(SANDBOX)
        journal.plan(session, EXCLUDE, [(key, None, json.dumps({}))], NOW)
        journal.mark(session, EXCLUDE, [key], JournalState.DONE, NOW)
        answers.set_capped(session, due.load.id, NOW)

        assert due_caps(Context(session, settings, SANDBOX)) == []
        assert answers.capped_at(session, SANDBOX) == {"A1": NOW}
        [lifted] = due_caps(Context(session, replace(settings, max_hits_per_worker=None), SANDBOX))
        assert (lifted.key(SANDBOX), lifted.capped) == ("uncap:sandbox:A1", False)


def _add_work(session: Session) -> None:
    """Five HITs: two of A1, one of A2, two of A3 who is excluded; and two of A2 in a file."""
    dataset = Dataset(name="d", kind="scenes", id_kind=IdKind.INTEGER, content_sha256="")
    session.add(dataset)
    rows = {
        name: Worker(
            environment=SANDBOX, mturk_worker_id=name, excluded_at=excluded, capped_at=None, note=None
        )
        for name, excluded in (("A1", None), ("A2", None), ("A3", NOW))
    }
    session.add_all(rows.values())
    session.flush()
    round_id = hits.open_round(session, dataset.id, SANDBOX, NOW)
    number = 0
    for source, names in (("crowd", ["A1", "A1", "A2", "A3", "A3"]), ("import", ["A2", "A2"])):
        batch = hits.add_batch(
            session,
            hits.NewBatch(
                round_id=round_id,
                environment=SANDBOX,
                direction="both",
                template="pairs-plain",
                reward_cents=100,
                assignments=1,
                seed=0,
                planned_at=NOW,
                source=source,
            ),
        )
        for name in names:
            number += 1
            _add_submission(session, batch.id, number, rows[name].id)


def _add_submission(session: Session, batch_id: int, number: int, worker_id: int) -> None:
    hit = Hit(
        batch_id=batch_id,
        number=number,
        attempt=1,
        replaces_id=None,
        assignments=1,
        state=HitState.CLOSED,
        mturk_hit_id=f"H{number}",
        token=f"t{number}",
    )
    session.add(hit)
    session.flush()
    session.add(
        Assignment(
            hit_id=hit.id,
            worker_id=worker_id,
            mturk_assignment_id=f"X{number}",
            accepted_at=NOW,
            submitted_at=NOW,
            status="Approved",
            decision=Decision.PASS,
            raw_xml="",
        )
    )
