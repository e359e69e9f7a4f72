"""Money: whatever happens in whatever order, the ledger's rows, the account's sums and the HITs' holds agree."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from crowd_kit import ManualClock
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from suite_kit import examples

from mitl.crowd_server import admin
from mitl.crowd_server.protocol.errors import TurkError
from mitl.crowd_server.protocol.ids import token_hash
from mitl.crowd_server.store import accounts, assignments, hits, leases, reports
from mitl.crowd_server.store import workers as worker_store
from mitl.crowd_server.store.database import Books, Database
from mitl.crowd_server.store.hits import TypeValues
from mitl.crowd_server.store.models import (
    RULES,
    AssignmentState,
    CrowdAssignment,
    CrowdHit,
    CrowdWorker,
    HitType,
    LedgerKind,
)
from mitl.crowd_server.store.workers import WorkerRow
from mitl.db.engine import make_engine
from mitl.errors import StoreError
from mitl.records import Environment

LIVE = Environment.LIVE
VALUES = TypeValues("t", "d", "", 70, 3600, 2 * 86400, "[]")


class Bookkeeping:
    """A requester with little money, three workers, and a clock."""

    def __init__(self, template, random):
        self.random = random
        self.folder = Path(tempfile.mkdtemp(prefix="mitl-ledger-"))
        shutil.copy(template, self.folder / "crowd.db")
        self.engine = make_engine(f"sqlite:///{self.folder / 'crowd.db'}")
        self.clock = ManualClock(dt.datetime(2026, 11, 20, tzinfo=dt.UTC))
        admin.set_budget(self.engine, LIVE, 500, clock=self.clock)
        self.database = Database(self.engine)
        self.workers: list[WorkerRow] = []
        with self.write() as books:
            self.type = hits.add_type(books, "digest", VALUES)
            for number in range(3):
                invitation = worker_store.add_invitation(
                    books,
                    str(number),
                    label="",
                    lasts=dt.timedelta(days=99),
                    personal=True,
                    max_uses=1,
                )
                row = worker_store.find_invitation(books.connection, token_hash(str(number)))
                assert row is not None and row.id == invitation
                self.workers.append(worker_store.add_worker(books.connection, row, books.now))

    @contextmanager
    def write(self):
        with self.database.write(LIVE) as connection:
            yield Books(connection, LIVE, self.clock())

    def post(self):
        n, lifetime = self.random.randint(1, 3), self.random.choice([3600, 86400, 5 * 86400])
        try:
            with self.write() as books:
                accounts.settle(books)
                hits.add_hit(
                    books,
                    self.type,
                    question="q",
                    annotation="",
                    max_assignments=n,
                    lifetime_s=lifetime,
                )
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    def work(self):
        worker, finish = self.random.randrange(3), self.random.choice(["submit", "submit", "return", "leave"])
        with self.write() as books:
            one = self.workers[worker]
            lease = leases.current(books, one)
            if lease is None:
                taken = leases.accept(books, one, self.type.mturk_id)
                if taken is None:
                    return
                lease = leases.find(books.connection, taken[0])
            assert lease is not None
            if finish == "submit":
                leases.submit(books, lease, "<a/>")
            elif finish == "return":
                leases.give_back(books, lease.id)

    def decide(self):
        approve, override = self.random.random() < 0.5, self.random.random() < 0.3
        try:
            with self.write() as books:
                accounts.settle(books)
                own = self.find(books, AssignmentState.REJECTED if override else AssignmentState.SUBMITTED)
                if own is None:
                    return
                if approve or override:
                    assignments.approve(books, own, "")
                else:
                    assignments.reject(books, own, "no")
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    def bonus(self):
        cents = self.random.randint(1, 200)
        try:
            with self.write() as books:
                accounts.settle(books)
                own = self.find(books, AssignmentState.APPROVED)
                if own is not None:
                    assignments.add_bonus(books, own, cents=cents, reason="r")
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    def move_expiry(self):
        days, oldest = self.random.choice([-1, 0, 3]), self.random.random() < 0.5
        try:
            with self.write() as books:
                accounts.settle(books)
                which = func.min(CrowdHit.id) if oldest else func.max(CrowdHit.id)
                hit_id = books.connection.execute(select(which)).scalar()
                if hit_id is not None:
                    hits.change(books, hit_id, expires_at=self.clock() + dt.timedelta(days=days))
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    def wait(self):
        self.clock.advance(hours=self.random.choice([0.5, 1, 1.1, 24, 80]))

    def set_budget(self):
        cents = self.random.randint(0, 900)
        try:
            admin.set_budget(self.engine, LIVE, cents, clock=self.clock)
        except StoreError as error:
            assert "at least" in str(error)

    def find(self, books, state):
        mturk_id = books.connection.execute(
            select(CrowdAssignment.mturk_id)
            .where(CrowdAssignment.state == state, CrowdAssignment.environment == LIVE)
            .order_by(CrowdAssignment.id)
            .limit(1)
        ).scalar()
        return None if mturk_id is None else assignments.find(books, mturk_id)

    def books_balance(self):
        with self.write() as books:
            accounts.settle(books)
            assert not accounts.is_due(books)
            connection = books.connection
            balance = accounts.balance(connection, LIVE)
            sums = reports.ledger_sums(connection)
            moved = {kind: sums.get((LIVE, kind), 0) for kind in LedgerKind}
            held_slots = connection.execute(
                select(func.coalesce(func.sum(CrowdHit.held_slots), 0))
            ).scalar_one()
            paid = sum(row.total_cents for row in reports.payments(connection, LIVE))
            earned = self.earnable(connection)
        assert balance.available >= 0
        assert moved[LedgerKind.BUDGET] == balance.budget
        assert moved[LedgerKind.HOLD] - moved[LedgerKind.RELEASE] == balance.held == 70 * held_slots
        assert moved[LedgerKind.REWARD] + moved[LedgerKind.BONUS] == balance.spent == paid
        assert held_slots == earned

    def earnable(self, connection):
        """Assignments that can still be earned, counted from scratch."""
        now = self.clock()
        total = 0
        for hit_id, slots, expires_at in connection.execute(
            select(CrowdHit.id, CrowdHit.max_assignments, CrowdHit.expires_at).join(HitType)
        ):
            rows = connection.execute(
                select(CrowdAssignment.state, CrowdAssignment.deadline_at)
                .join(CrowdWorker)
                .where(CrowdAssignment.hit_id == hit_id)
            ).all()
            submitted = sum(state is AssignmentState.SUBMITTED for state, _ in rows)
            decided = sum(state in (AssignmentState.APPROVED, AssignmentState.REJECTED) for state, _ in rows)
            running = sum(state is AssignmentState.ACCEPTED and until > now for state, until in rows)
            assert submitted + decided + running <= slots
            total += slots - decided if expires_at > now else submitted + running
        return total

    def step(self):
        actions = [
            self.post,
            self.work,
            self.decide,
            self.bonus,
            self.move_expiry,
            self.wait,
            self.set_budget,
        ]
        self.random.choices(actions, [4, 8, 4, 1, 1, 2, 1])[0]()

    def close(self):
        self.engine.dispose()
        shutil.rmtree(self.folder)


# A failure shows its seed as drawn; there is nothing to shrink in it.
@settings(max_examples=examples(4, 8), deadline=None, derandomize=True, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_the_books_balance_after_every_step(crowd_template, seed):
    """Posting, working, deciding, bonuses, expiry, waiting and budgets in any order."""
    books = Bookkeeping(crowd_template, Random(seed))
    try:
        for _ in range(50):
            books.step()
            books.books_balance()
    finally:
        books.close()


def test_a_hit_is_given_out_up_to_its_expiry_and_to_who_gave_it_back_from_their_old_deadline(crowd_template):
    """To the microsecond; the list of what there is and the HIT that is given out never differ."""
    books = Bookkeeping(crowd_template, Random(0))
    start, moment = books.clock(), dt.timedelta(microseconds=1)

    def takes(worker, after_s, less=dt.timedelta(0)):
        """Whether this worker is offered the HIT then, and gets it; it is given back at once."""
        books.clock.advance(
            seconds=(start + dt.timedelta(seconds=after_s) - less - books.clock()).total_seconds()
        )
        with books.write() as at:
            listed = sum(group.available for group in leases.groups(at, books.workers[worker]))
            taken = leases.accept(at, books.workers[worker], books.type.mturk_id)
            assert listed == (taken is not None)
            if taken is not None:
                assert leases.find(at.connection, taken[0]).deadline_at == at.now + dt.timedelta(seconds=3600)
                assert leases.find(at.connection, taken[0]).worker == books.workers[worker].mturk_id
                assert leases.groups(at, books.workers[2]) == []
                assert leases.accept(at, books.workers[2], books.type.mturk_id) is None
                leases.give_back(at, taken[0])
            return taken is not None

    try:
        with books.write() as at:
            hits.add_hit(at, books.type, question="q", annotation="", max_assignments=1, lifetime_s=5000)
        assert takes(0, 0)
        assert not takes(0, 3600, moment)
        assert takes(1, 3600, moment)
        assert takes(0, 3600)
        assert not takes(0, 5000, moment)
        assert not takes(1, 5000, moment)
        assert takes(2, 5000, moment)
        assert not takes(2, 5000)
        with books.write() as at:
            hits.add_hit(at, books.type, question="q", annotation="", max_assignments=1, lifetime_s=30)
        assert takes(1, 5030, moment)
        assert not takes(0, 5030)
    finally:
        books.close()


def test_work_on_a_hit_that_expired_under_a_clock_that_ran_ahead_takes_no_other_money(crowd_template):
    """Once the clock is set right, its pay and its refusal leave the books as if its money had never been set free."""
    books = Bookkeeping(crowd_template, Random(0))
    try:
        with books.write() as at:
            hits.add_hit(at, books.type, question="q", annotation="", max_assignments=3, lifetime_s=86400)
        books.clock.advance(days=9)
        with books.write() as at:
            accounts.settle(at)
        books.clock.advance(days=-9)
        with books.write() as at:
            for worker in books.workers:
                own_id, _ = leases.accept(at, worker, books.type.mturk_id)
                leases.submit(at, leases.find(at.connection, own_id), "<a/>")
            assignments.approve(at, books.find(at, AssignmentState.SUBMITTED), "")
            assignments.reject(at, books.find(at, AssignmentState.SUBMITTED), "no")
            assert accounts.balance(at.connection, LIVE).held == 0
        books.clock.advance(days=3)  # the third is approved by itself

        books.books_balance()
        with books.write() as at:
            balance = accounts.balance(at.connection, LIVE)
        assert (balance.held, balance.spent, balance.available) == (0, 140, 360)
    finally:
        books.close()


@pytest.mark.parametrize("ends", ["give_back", "withdraw", "revoke"])
def test_what_an_expired_hit_held_for_a_lease_is_free_once_it_is_returned(crowd_template, ends):
    """Not only at the lease's old deadline: nobody can earn it any more."""
    books = Bookkeeping(crowd_template, Random(0))
    worker = books.workers[0]
    try:
        with books.write() as at:
            hits.add_hit(at, books.type, question="q", annotation="", max_assignments=2, lifetime_s=60)
            own_id, _ = leases.accept(at, worker, books.type.mturk_id)
        books.clock.advance(seconds=61)
        with books.write() as at:
            accounts.settle(at)
            assert accounts.balance(at.connection, LIVE).held == 70
            if ends == "give_back":
                leases.give_back(at, own_id)
            elif ends == "withdraw":
                leases.withdraw(at, worker)
            else:
                assert worker_store.revoke_invitation(at, worker.invitation_id)
            assert accounts.is_due(at)
        books.books_balance()
        assert admin.balance(books.engine, LIVE).held == 0
    finally:
        books.close()


@pytest.mark.parametrize(("by", "held"), [("requester", 9 * 70), ("clock", 8 * 70)])
def test_a_hit_that_ends_with_work_done_under_a_clock_set_back_finds_its_money(crowd_template, by, held):
    """Whatever the requester spent meanwhile: what was done is owed, and no later call is refused for it."""
    books = Bookkeeping(crowd_template, Random(0))
    one, *others = books.workers
    try:
        with books.write() as at:
            kind = hits.add_type(at, "long", replace(VALUES, duration_s=3 * 3600))
            hit = hits.add_hit(at, kind, question="q", annotation="", max_assignments=3, lifetime_s=3600)
            leases.accept(at, one, kind.mturk_id)
        books.clock.advance(hours=2)
        with books.write() as at:
            accounts.settle(at)
        books.clock.advance(hours=-2)
        with books.write() as at:
            for worker in others:
                own_id, _ = leases.accept(at, worker, kind.mturk_id)
                leases.submit(at, leases.find(at.connection, own_id), "<a/>")
            hits.add_hit(at, kind, question="q", annotation="", max_assignments=6, lifetime_s=9 * 86400)
        if by == "clock":
            books.clock.advance(hours=4)
        with books.write() as at:
            if by == "requester":
                hits.change(at, hit.id, expires_at=at.now)
            accounts.settle(at)
            assert accounts.balance(at.connection, LIVE).held == held and not accounts.is_due(at)
    finally:
        books.close()


@pytest.mark.parametrize("set_back_s", [10, 3605], ids=["skewed", "stepped"])
def test_clocks_that_differ_let_two_submit_for_one_place_and_both_count(crowd_template, set_back_s):
    """A HIT whose time is over by one server's clock is taken again; the first worker submits by another's.

    Each has an id of their own, the HIT is done, and both are paid.
    """
    books = Bookkeeping(crowd_template, Random(0))
    one, two, _ = books.workers
    name = books.type.mturk_id

    try:
        with books.write() as at:
            hit = hits.add_hit(
                at, books.type, question="q", annotation="", max_assignments=1, lifetime_s=86400
            )
            first = leases.find(at.connection, leases.accept(at, one, name)[0])
        books.clock.advance(seconds=3605)
        with books.write() as at:
            second = leases.find(at.connection, leases.accept(at, two, name)[0])
        books.clock.advance(seconds=-set_back_s)
        with books.write() as at:
            assert leases.submit(at, first, "<a/>") and leases.submit(at, second, "<b/>")
            assert first.mturk_id != second.mturk_id
            row = hits.find_hit(at, hit.mturk_id)
            assert (row.status(at.now), row.undecided) == ("Reviewable", 2)
            for lease in (first, second):
                assignments.approve(at, assignments.find(at, lease.mturk_id), "")
            accounts.settle_hit(at, hit.id)
            balance = accounts.balance(at.connection, LIVE)
            assert (balance.held, balance.spent) == (0, 140)
            assert not any(at.connection.exec_driver_sql(rule).scalar() for rule in RULES.values())
    finally:
        books.close()


def test_what_one_worker_holds_gives_back_or_submits_is_theirs_alone(crowd_template):
    """Each has a row of their own, under an id that no work that still counts bears."""
    books = Bookkeeping(crowd_template, Random(0))
    one, two, three = books.workers
    name = books.type.mturk_id

    def held(at):
        """Worker → row of what they hold, by both ways to ask."""
        rows = {worker.id: lease.id for worker in books.workers if (lease := leases.current(at, worker))}
        known = {worker.id: leases.at_hand(at, worker, name)[1] for worker in books.workers}
        assert rows == {worker: own[0] for worker, own in known.items() if own}
        return rows

    try:
        with books.write() as at:
            hits.add_hit(at, books.type, question="q", annotation="", max_assignments=3, lifetime_s=86400)
            rows = {worker.id: leases.accept(at, worker, name)[0] for worker in books.workers}
            ids = {worker: leases.find(at.connection, row).mturk_id for worker, row in rows.items()}
            assert held(at) == rows and len({*rows.values()}) == len({*ids.values()}) == 3

            first = leases.find(at.connection, rows[one.id])
            assert leases.submit(at, first, "<a/>") and not leases.submit(at, first, "<b/>")
            assert held(at) == {two.id: rows[two.id], three.id: rows[three.id]}

            before = leases.find(at.connection, rows[two.id])
            leases.withdraw(at, one)
            assert held(at) == {two.id: rows[two.id], three.id: rows[three.id]}
            leases.give_back(at, rows[two.id])
            assert held(at) == {three.id: rows[three.id]}
            leases.withdraw(at, two)
            leases.withdraw(at, three)
            states = [leases.find(at.connection, row).state for row in rows.values()]
            assert states == [AssignmentState.SUBMITTED, AssignmentState.RETURNED, AssignmentState.RETURNED]
            assert held(at) == {} and leases.groups(at, one) == [] and leases.accept(at, one, name) is None

        books.clock.advance(seconds=1)
        with books.write() as at:
            assert leases.accept(at, three, name) == (rows[three.id], at.now)
            assert leases.find(at.connection, rows[three.id]).mturk_id == ids[two.id]
            assert leases.accept(at, two, name) is None  # given back, and its old deadline is to come
        books.clock.advance(seconds=3599)
        with books.write() as at:
            assert leases.accept(at, two, name) == (rows[two.id], at.now)
            assert held(at) == {two.id: rows[two.id], three.id: rows[three.id]}
            assert len({leases.find(at.connection, row).mturk_id for row in rows.values()}) == 3
            assert not leases.submit(at, before, "<a/>")  # that go is over, though they hold the HIT again

            other = hits.add_type(at, "other", VALUES)
            hits.add_hit(at, other, question="q", annotation="", max_assignments=1, lifetime_s=86400)
            assert leases.at_hand(at, one, "nonsense")[0] is None and leases.accept(at, one, name) is None
            assert [(group.mturk_id, group.available) for group in leases.groups(at, one)] == [
                (other.mturk_id, 1)
            ]
            late = leases.find(at.connection, leases.accept(at, one, other.mturk_id)[0])
            assert late.hit_type == other.mturk_id
        books.clock.advance(seconds=3600)
        with books.write() as at:
            assert not leases.submit(at, late, "<a/>")
    finally:
        books.close()


def test_a_hit_of_several_places_is_not_offered_to_who_holds_it(crowd_template):
    """Its other places are for others; what else there is of its type is offered as before."""
    books = Bookkeeping(crowd_template, Random(0))
    one, two, _ = books.workers

    def listed(at, worker):
        return [group.available for group in leases.groups(at, worker)]

    try:
        with books.write() as at:
            hits.add_hit(at, books.type, question="q", annotation="", max_assignments=2, lifetime_s=86400)
            lease, _ = leases.accept(at, one, books.type.mturk_id)
            assert (listed(at, one), listed(at, two)) == ([], [1])
            hits.add_hit(at, books.type, question="q", annotation="", max_assignments=1, lifetime_s=86400)
            assert (listed(at, one), listed(at, two)) == ([1], [2])
        books.clock.advance(
            seconds=3600
        )  # the duration of the type: it was not submitted, and may be taken again
        with books.write() as at:
            assert leases.find(at.connection, lease).has_run_out(at.now)
            assert (listed(at, one), listed(at, two)) == ([2], [2])
    finally:
        books.close()


def test_the_sandbox_budget_cannot_be_set(crowd_engine):
    """Practice money needs no budget."""
    with pytest.raises(StoreError, match="practice money"):
        admin.set_budget(crowd_engine, Environment.SANDBOX, 1)


pytest_plugins = ("crowd_fixtures",)
