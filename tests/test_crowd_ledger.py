"""Money: whatever happens in whatever order, the ledger's rows, the account's sums and the HITs' holds agree."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import func, select

from mitl.crowd_server import admin
from mitl.crowd_server.clock import ManualClock
from mitl.crowd_server.errors import TurkError
from mitl.crowd_server.models import Assignment, AssignmentState, Hit, HitType, LedgerKind, Worker
from mitl.crowd_server.store import accounts, assignments, hits, leases, reports, settling
from mitl.crowd_server.store import workers as worker_store
from mitl.crowd_server.store.database import Database
from mitl.crowd_server.store.hits import TypeValues
from mitl.crowd_server.store.workers import WorkerRow
from mitl.db.engine import make_engine
from mitl.errors import StoreError
from mitl.records import Environment

LIVE = Environment.LIVE
VALUES = TypeValues("t", "d", "", 70, 3600, 2 * 86400, "[]")


class Bookkeeping(RuleBasedStateMachine):
    """A requester with little money, three workers, and a clock."""

    template: Path

    @initialize()
    def open_books(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mitl-ledger-"))
        shutil.copy(self.template, self.folder / "crowd.db")
        self.engine = make_engine(f"sqlite:///{self.folder / 'crowd.db'}")
        self.clock = ManualClock(dt.datetime(2026, 11, 20, tzinfo=dt.UTC))
        admin.set_budget(self.engine, LIVE, 500, clock=self.clock)
        self.database = Database(self.engine)
        self.workers: list[WorkerRow] = []
        with self.write() as connection:
            self.type = hits.add_type(connection, LIVE, "digest", VALUES, self.clock())
            for number in range(3):
                invitation = worker_store.add_invitation(
                    connection,
                    LIVE,
                    token_sha256=str(number),
                    label="",
                    personal=True,
                    max_uses=1,
                    expires_at=self.clock() + dt.timedelta(days=99),
                    now=self.clock(),
                )
                row = worker_store.find_invitation(connection, str(number))
                assert row is not None and row.id == invitation
                self.workers.append(worker_store.add_worker(connection, row, self.clock()))

    def write(self):
        return self.database.write(LIVE)

    @rule(n=st.integers(1, 3), lifetime=st.sampled_from([3600, 86400, 5 * 86400]))
    def post(self, n, lifetime):
        try:
            with self.write() as connection:
                settling.settle(connection, LIVE, self.clock())
                hits.add_hit(
                    connection,
                    LIVE,
                    self.type,
                    question="q",
                    annotation="",
                    max_assignments=n,
                    lifetime_s=lifetime,
                    now=self.clock(),
                )
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    @rule(worker=st.integers(0, 2), finish=st.sampled_from(["submit", "return", "leave"]))
    def work(self, worker, finish):
        with self.write() as connection:
            one = self.workers[worker]
            lease = leases.current(connection, one, self.clock())
            if lease is None:
                taken = leases.accept(connection, one, self.type.mturk_id, self.clock())
                if taken is None:
                    return
                lease = leases.find(connection, taken[0])
            assert lease is not None
            if finish == "submit":
                leases.submit(connection, lease, "<a/>", self.clock())
            elif finish == "return":
                leases.give_back(connection, lease.id)

    @rule(approve=st.booleans(), override=st.booleans())
    def decide(self, approve, override):
        try:
            with self.write() as connection:
                settling.settle(connection, LIVE, self.clock())
                own = self.find(
                    connection, AssignmentState.REJECTED if override else AssignmentState.SUBMITTED
                )
                if own is None:
                    return
                if approve or override:
                    assignments.approve(connection, LIVE, own, feedback="", now=self.clock())
                else:
                    assignments.reject(connection, LIVE, own, feedback="no", now=self.clock())
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    @rule(cents=st.integers(1, 200))
    def bonus(self, cents):
        try:
            with self.write() as connection:
                settling.settle(connection, LIVE, self.clock())
                own = self.find(connection, AssignmentState.APPROVED)
                if own is not None:
                    assignments.add_bonus(connection, LIVE, own, cents=cents, reason="r", now=self.clock())
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    @rule(days=st.sampled_from([-1, 0, 3]))
    def move_expiry(self, days):
        try:
            with self.write() as connection:
                settling.settle(connection, LIVE, self.clock())
                hit_id = connection.execute(select(func.max(Hit.id)).where(Hit.deleted_at.is_(None))).scalar()
                if hit_id is not None:
                    hits.set_expiration(connection, hit_id, self.clock() + dt.timedelta(days=days))
                    settling.settle_hit(connection, LIVE, hit_id, self.clock())
        except TurkError as error:
            assert error.code == "AWS.MechanicalTurk.InsufficientFunds"

    @rule(hours=st.sampled_from([0.5, 2, 30, 80]))
    def wait(self, hours):
        self.clock.advance(hours=hours)

    @rule(cents=st.integers(0, 900))
    def set_budget(self, cents):
        try:
            admin.set_budget(self.engine, LIVE, cents, clock=self.clock)
        except StoreError as error:
            assert "at least" in str(error)

    def find(self, connection, state):
        mturk_id = connection.execute(
            select(Assignment.mturk_id)
            .where(Assignment.state == state, Assignment.environment == LIVE)
            .order_by(Assignment.id)
            .limit(1)
        ).scalar()
        return None if mturk_id is None else assignments.find(connection, LIVE, mturk_id)

    @invariant()
    def books_balance(self):
        with self.write() as connection:
            settling.settle(connection, LIVE, self.clock())
            assert not settling.is_due(connection, LIVE, self.clock())
            balance = accounts.balance(connection, LIVE)
            sums = reports.ledger_sums(connection)
            moved = {kind: sums.get((LIVE, kind), 0) for kind in LedgerKind}
            held_slots = connection.execute(select(func.coalesce(func.sum(Hit.held_slots), 0))).scalar_one()
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
            select(Hit.id, Hit.max_assignments, Hit.expires_at).join(HitType)
        ):
            rows = connection.execute(
                select(Assignment.state, Assignment.deadline_at)
                .join(Worker)
                .where(Assignment.hit_id == hit_id)
            ).all()
            submitted = sum(state is AssignmentState.SUBMITTED for state, _ in rows)
            decided = sum(state in (AssignmentState.APPROVED, AssignmentState.REJECTED) for state, _ in rows)
            running = sum(state is AssignmentState.ACCEPTED and until > now for state, until in rows)
            assert submitted + decided + running <= slots
            total += slots - decided if expires_at > now else submitted + running
        return total

    def teardown(self):
        self.engine.dispose()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A new crowd.db to copy."""
    path = tmp_path_factory.mktemp("ledger") / "crowd.db"
    engine = make_engine(f"sqlite:///{path}")
    admin.prepare(engine)
    engine.dispose()
    return path


def test_the_books_balance_after_every_step(template):
    """Posting, working, deciding, bonuses, expiry, waiting and budgets in any order."""
    from hypothesis.stateful import run_state_machine_as_test

    Bookkeeping.template = template
    run_state_machine_as_test(
        Bookkeeping,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_sandbox_budget_cannot_be_set(crowd_engine):
    """Practice money needs no budget."""
    with pytest.raises(StoreError, match="practice money"):
        admin.set_budget(crowd_engine, Environment.SANDBOX, 1)


pytest_plugins = ("crowd_fixtures",)
