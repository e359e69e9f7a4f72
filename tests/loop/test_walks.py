"""Commands in random order, people who come, leave and fail controls, and time that passes: the books agree all along,
and what is still open comes to an end."""

from __future__ import annotations

import random

import pytest
from books import assert_books_agree
from cli_kit import Outcome, mitl, ok
from harvest_kit import on_server, queued, submissions
from publish_kit import SamePeople
from world_kit import copied_once, make_world, run_propose

from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import rounds as round_store
from mitl.records import Environment

SANDBOX = Environment.SANDBOX
MICROSECONDS = 3_600_000_000
TIMES = {
    "hit": ("expires_at", "settle_at"),
    "assignment": ("accepted_at", "deadline_at", "auto_approve_at", "submitted_at"),
}


def small(folder):
    """A project with two HITs' worth of pairs."""

    def make(new):
        run_propose(make_world(new, n_images=12), image_queries=2, caption_queries=3)

    return copied_once("walked", make, folder)


class Walk:
    """One project, what its people do, and the commands that were run on it."""

    def __init__(self, settings, seed):
        self.settings, self.random = settings, random.Random(seed)
        self.people = SamePeople(settings)
        self.done: list[str] = []

    def run(self, *words) -> Outcome:
        """A command, which may be refused, in one clear line."""
        outcome = mitl(*words, "--project", self.settings.project, "--json")
        self.done.append(f"{' '.join(map(str, words))}: {outcome.json['error'] or outcome.json['counts']}")
        assert outcome.status in (0, 1, 2)
        if outcome.status:
            assert outcome.error == outcome.json["error"]
        return outcome

    def again(self, *words):
        """A command that has nothing to do where it is run once more at once."""
        if self.run(*words).status == 0:
            assert self.run(*words).json["status"] == "nothing_to_do"

    def chance(self, share, *words):
        """These words, now and then."""
        return words if self.random.random() < share else ()

    def publish(self):
        """Post what is open, in part or whole, after a dry run that says what it comes to."""
        words = (
            *self.chance(0.3, "--direction", self.random.choice(("i2t", "t2i"))),
            *self.chance(0.3, "--assignments", self.random.choice((2, 3))),
            *self.chance(0.2, "--limit", self.random.choice((5, 20))),
            *self.chance(0.2, "--overlap", self.random.choice((0.3, 1))),
            *self.chance(0.2, "--reward", "0.40"),
            *self.chance(0.2, "--no-wait-for-pilot", "--pilot", 1),
            *self.chance(1 if self.round_is_open() else 0.1, "--chosen"),
        )
        planned = self.run("publish", "--sandbox", *words, "--dry-run").json
        posted = self.run("publish", "--sandbox", *words).json
        assert (planned["status"], planned["error"]) == (posted["status"], posted["error"])
        shared = planned["counts"].keys() & posted["counts"].keys()
        assert {key: planned["counts"][key] for key in shared} == {
            key: posted["counts"][key] for key in shared
        }
        if posted["status"] != "error":
            assert not self.run("publish", "--sandbox", *words).json["counts"].get("hits_posted")

    def work(self):
        """Somebody new does a page or two, or all who have come before do what they are offered."""
        who = self.random.choice(("careful", "careful", "hasty", "random"))
        if self.random.random() < 0.4:
            self.people.join(1, who)
            self.people.work()
        else:
            self.run("simulate", "--sandbox", "--workers", who, "--max-hits", self.random.choice((1, 2)))

    def review(self):
        """Decide about what waits, or take a rejection back."""
        waiting, numbers = queued(self.settings), [row.id for row in submissions(self.settings)]
        if waiting and self.random.random() < 0.8:
            how = self.random.choice(("approve", "drop", "exclude", "reject"))
            reason = ("--reason", "the same answer throughout", "--yes") if how == "reject" else ()
            self.run("review", how, waiting[0], "--sandbox", *reason)
        elif numbers:
            self.run(
                "review", "reverse", self.random.choice(numbers), "--sandbox", *self.chance(0.5, "--use")
            )

    def end(self):
        """Extend, end or delete a batch's HITs."""
        with open_database(self.settings.db_url, read_only=True) as session:
            names = [batch.name for batch in hit_store.batches(session, SANDBOX)]
        if not names:
            return
        how = self.random.choice(("extend", "extend", "expire", "delete"))
        more = ("--assignments", 3, "--days", 2) if how == "extend" else ()
        self.again("hits", how, self.random.choice(names), "--sandbox", *more)

    def wait(self):
        """Hours or days pass on the server."""
        past = self.random.choice((2, 30, 200)) * MICROSECONDS
        for table, columns in TIMES.items():
            on_server(
                self.settings, f"UPDATE {table} SET {', '.join(f'{c} = {c} - {past}' for c in columns)}"
            )

    def round(self):
        """Open a round, or close or take back the one that is open."""
        if not self.round_is_open():
            self.run("round", "next", "--sandbox", "--strategy", "doubts", "--budget", "5.00", "--yes")
        elif self.run("round", "close", "--sandbox").status:
            self.run("round", "rollback", "--sandbox")

    def round_is_open(self):
        """Whether one is."""
        with open_database(self.settings.db_url, read_only=True) as session:
            return round_store.open_round(session, SANDBOX) is not None

    def audit(self):
        """Draw a small sample."""
        self.run("audit", "draw", "--sandbox", "--size", 6, *self.chance(0.5, "--for", "labels"))

    def harvest(self):
        """Fetch twice, and compare the books."""
        self.again("harvest", "--sandbox")
        assert_books_agree(self.settings)


STEPS = {
    Walk.publish: 4,
    Walk.work: 4,
    Walk.harvest: 3,
    Walk.review: 3,
    Walk.end: 2,
    Walk.wait: 1,
    Walk.round: 1,
    Walk.audit: 1,
}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(1, 9))
def test_whatever_order_commands_come_in_the_books_agree_and_the_work_ends(tmp_path, seed):
    """No command fails but in words; then careful people come until nothing is open, in a few runs."""
    walk = Walk(small(tmp_path / "p"), seed)
    try:
        walk.run("publish", "--sandbox", "--limit", 18)
        for step in walk.random.choices(list(STEPS), list(STEPS.values()), k=16):
            step(walk)
        while walk.round_is_open():
            walk.round()
        for _ in range(8):
            posted = walk.run("publish", "--sandbox", "--no-wait-for-pilot").json
            walk.people.join(3)
            done = walk.people.work()
            if posted["status"] == "nothing_to_do" and not done:
                break
        counts = ok("status", "--sandbox", "--project", walk.settings.project, "--json").json["counts"]
        keys = ("pairs_open", "hits_out", "queued", "hits_to_ask_again", "calls_open")
        assert [counts[key] for key in keys] == [0] * len(keys)
        assert_books_agree(walk.settings)
        assert ok("db", "verify", "--project", walk.settings.project, "--json").json["counts"]["faults"] == []
    except AssertionError as error:
        error.add_note("\n".join(walk.done))
        raise
