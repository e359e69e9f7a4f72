"""Participants of two panels and a requester, in any order of what they may do, held against a small model."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from random import Random
from urllib.parse import urlencode

from crowd_kit import TYPE, Crowd, Task, Worker, engine_of, post_hit, running_crowd
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from suite_kit import examples

from mitl.crowd_server import admin
from mitl.crowd_server.admin import PanelPlan
from mitl.crowd_server.pages.panels import ENDS, End
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

PLACES = 2
PER_VISIT = {"one": 1, "three": 3}
OPEN, COMPLETED, NO_CONSENT, NOTHING_LEFT = "open", "completed", "no_consent", "nothing_left"


@dataclass(eq=False)
class Lease:
    """Somebody's go at a HIT."""

    task: Task
    until: dt.datetime
    is_returned: bool = False
    is_sent: bool = False


@dataclass(eq=False)
class Visit:
    """A session of somebody on a panel."""

    slug: str
    session: str
    state: str
    done: int = 0


@dataclass(eq=False)
class Person:
    """A participant with one browser, which is on one of their visits."""

    pid: str
    browser: Worker
    visits: list[Visit] = field(default_factory=list)
    on: Visit | None = None
    agreed: dict[int, bool] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)


class Walk:
    """A running server, and what has happened on it so far."""

    def __init__(self, crowd: Crowd, random: Random) -> None:
        self.crowd, self.random, self.client = crowd, random, crowd.boto()
        self.type = self.client.create_hit_type(**TYPE)["HITTypeId"]
        self.hits: list[str] = []
        self.version = 0
        self.closed: set[str] = set()
        for slug, per_visit in PER_VISIT.items():
            ends = {state: End("", f"{slug}-{state.value}") for state in ENDS}
            plan = PanelPlan("prolific", slug, None, per_visit, ends)
            admin.add_panel(crowd.engine, Environment.SANDBOX, plan, clock=crowd.clock)
        self.people = [Person(f"{number:024x}", Worker(crowd, crowd.browser())) for number in range(1, 4)]

    def step(self):
        """Anything; what nobody could do now does nothing."""
        often = [self.arrive, self.go_on, self.go_on, self.submit, self.give_back, self.consent]
        now_and_then = [self.take, self.wait, self.submit, self.send_late]
        seldom = [self.post, self.describe, self.close]
        self.random.choice([*often * 4, *now_and_then * 2, *seldom])(self.random.choice(self.people))

    def post(self, _: Person):
        more = {"MaxAssignments": PLACES, "LifetimeInSeconds": 300 * 86400}
        self.hits.append(post_hit(self.client, self.type, **more)["HITId"])

    def describe(self, _: Person):
        text = {"information": f"As of {self.crowd.clock()}.", "consent": "I agree."}
        own = admin.change_study(self.crowd.engine, Environment.SANDBOX, text, clock=self.crowd.clock)
        self.version = own[0].version

    def close(self, _: Person):
        slug = self.random.choice(list(PER_VISIT))
        assert admin.close_panel(self.crowd.engine, slug, clock=self.crowd.clock) == (slug not in self.closed)
        self.closed.add(slug)

    def wait(self, _: Person):
        self.crowd.clock.advance(minutes=self.random.choice([1, 40, 70]))

    def arrive(self, person: Person):
        self.come(person, self.random.choice(list(PER_VISIT)), self.random.choice("ab") + person.pid[-1])

    def come(self, person: Person, slug: str, session: str):
        names = {"PROLIFIC_PID": person.pid, "STUDY_ID": "s", "SESSION_ID": session}
        page = person.browser.get(f"/p/{slug}?{urlencode(names)}")
        person.on = next((own for own in person.visits if (own.slug, own.session) == (slug, session)), None)
        if person.on is None:
            person.on = Visit(slug, session, NOTHING_LEFT if slug in self.closed else OPEN)
            person.visits.append(person.on)
        self.led(person, page)

    def go_on(self, person: Person):
        if person.on:
            self.led(person, person.browser.get("/w/start"))

    def take(self, person: Person):
        if person.on and person.on.state not in (COMPLETED, NOTHING_LEFT):
            self.led(person, person.browser.post("/w/accept", {"hit_type_id": self.type}))

    def consent(self, person: Person):
        if person.on and self.version:
            self.say(person, self.random.random() < 0.7)

    def say(self, person: Person, agrees: bool):
        fields = {"answer": "yes" if agrees else "no", "version": str(self.version)}
        page = person.browser.post("/w/study", fields)
        person.agreed[self.version] = agrees
        if person.on.state in (OPEN, NO_CONSENT):
            person.on.state = OPEN if agrees else NO_CONSENT
        if agrees:
            self.led(person, page)
        elif held := self.at_hand(person):
            held.is_returned, held.until = True, self.crowd.clock()

    def give_back(self, person: Person):
        if held := self.at_hand(person):
            person.browser.post(f"/w/a/{held.task.token}/return")
            held.is_returned = True

    def submit(self, person: Person):
        if held := self.at_hand(person):
            assert held.task.submit(p01_label="yes").status_code == 200
            held.is_sent = True
            # The newest open visit counts it, whichever the browser is on.
            if counting := [visit for visit in person.visits if visit.state == OPEN][-1:]:
                counting[0].done += 1
                counting[0].state = COMPLETED if counting[0].done == PER_VISIT[counting[0].slug] else OPEN

    def send_late(self, person: Person):
        """What is sent again, or after its time, changes no count."""
        for own in person.leases.values():
            if not self.is_live(own):
                assert own.task.submit(p01_text="late").status_code == (200 if own.is_sent else 410)

    def is_live(self, own: Lease) -> bool:
        return not own.is_returned and not own.is_sent and own.until > self.crowd.clock()

    def at_hand(self, person: Person) -> Lease | None:
        return next(filter(self.is_live, person.leases.values()), None)

    def counts(self, hit: str) -> tuple[int, int]:
        """How many have submitted it, and how many are at work on it."""
        leases = [person.leases[hit] for person in self.people if hit in person.leases]
        return sum(own.is_sent for own in leases), sum(map(self.is_live, leases))

    def offered(self, person: Person) -> str | None:
        """What comes next: a HIT never held, else one held before, but none that was returned before its deadline."""
        free = [hit for hit in self.hits if sum(self.counts(hit)) < PLACES]
        now, held = self.crowd.clock(), person.leases
        again = [hit for hit in free if hit in held and not held[hit].is_sent]
        again = [hit for hit in again if not held[hit].is_returned or held[hit].until <= now]
        never = [hit for hit in free if hit not in held]
        return next(iter([*never, *again]), None)

    def led(self, person: Person, page):
        """The server has led somebody to where the model leads them."""
        visit, task, agreed = person.on, person.browser.task(page), person.agreed.get(self.version)
        assert page.status_code == 200, page.text
        if visit.state in (OPEN, NO_CONSENT) and self.version and not agreed:
            if agreed is None or visit.state == OPEN:
                assert task is None and 'name="version"' in page.text
                return
        elif visit.state in (OPEN, NO_CONSENT):
            if held := self.at_hand(person):
                assert task.token == held.task.token
                return
            hit = self.offered(person) if visit.state == OPEN else None
            if hit is not None:
                assert task.query["hitId"] == hit
                until = self.crowd.clock() + dt.timedelta(seconds=TYPE["AssignmentDurationInSeconds"])
                person.leases[hit] = Lease(task, until)
                return
            if visit.state == OPEN:
                visit.state = COMPLETED if visit.done else NOTHING_LEFT
        assert re.findall(r'id="code">([^<]*)<', page.text) == [f"{visit.slug}-{visit.state}"]

    def agrees(self):
        """The server says of every HIT and visit what the model does."""
        for hit in self.hits:
            sent, at_work = self.counts(hit)
            told = self.client.get_hit(HITId=hit)["HIT"]
            counts = told["NumberOfAssignmentsPending"], told["NumberOfAssignmentsAvailable"]
            assert counts == (at_work, PLACES - sent - at_work)
        for slug in PER_VISIT:
            rows = admin.list_visits(self.crowd.engine, slug)
            own = [visit for person in self.people for visit in person.visits if visit.slug == slug]
            told = [(row.session, row.state.value, row.hits_done) for row in rows]
            assert sorted(told) == sorted((visit.session, visit.state, visit.done) for visit in own)

    def to_the_ends(self):
        """Everybody opens each of their visits again, agrees where they are asked, and works until its end."""
        for person in self.people:
            for visit in person.visits:
                self.come(person, visit.slug, visit.session)
                while visit.state == OPEN:
                    if self.version and not person.agreed.get(self.version):
                        self.say(person, agrees=True)
                    self.submit(person)
                    self.go_on(person)


@settings(max_examples=examples(3, 30), phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_visits_and_leases_are_as_modelled_whatever_comes_next(crowd_template, tmp_path_factory, seed):
    """Arrivals, consent, work, returns, late answers, closing and waiting; every visit comes to one end."""
    folder = tmp_path_factory.mktemp("walk")
    with engine_of(crowd_template, folder) as engine, running_crowd(engine) as crowd:
        walk = Walk(crowd, Random(seed))
        for person in walk.people:
            walk.post(person)
            walk.arrive(person)
        for _ in range(10):
            for _ in range(6):
                walk.step()
            walk.agrees()
        walk.to_the_ends()
        walk.agrees()
