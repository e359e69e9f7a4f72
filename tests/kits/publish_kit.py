"""Copies of one small project with proposals, made once, and the same people who work through what is posted."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from world_kit import SANDBOX, copied_once, make_world, run_propose

from mitl.campaign.publish import publish
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.scripted import ScriptedWork, ScriptedWorker, run_workers
from mitl.datasets.scenes.truth import Truth
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.records import Label, PairRole
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.reviewing.review import settle


def proposed(folder: Path) -> Settings:
    """A project of its own in ``folder``."""
    return copied_once("proposed", lambda new: run_propose(make_world(new)), folder)


class SamePeople:
    """The same people, who answer whatever they are offered."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.people: list[tuple[str, str]] = []
        """The path of the invitation, and how they answer."""

    def join(self, n: int, population: str = "careful") -> None:
        """So many more people."""
        with open_endpoint(self.settings, SANDBOX) as endpoint:
            links = [link.removeprefix(endpoint.url) for link in endpoint.invite(n)]
        self.people += [(link, population) for link in links]

    def work(self) -> int:
        """Take what there is until nothing is left for any of them, and harvest it; HITs that were answered."""
        with open_database(self.settings.db_url, read_only=True) as session:
            hits = {hit.mturk_hit_id: hit.id for hit in hit_store.hits(session, SANDBOX)}
            items = hit_store.hit_items(session, list(hits.values()))

        def truth_of(hit: str) -> dict[int, Truth]:
            no = PairRole.GOLD_NEGATIVE
            return {
                item.place: Truth(Label.NO if item.role is no else Label.YES, ()) for item in items[hits[hit]]
            }

        with open_endpoint(self.settings, SANDBOX) as endpoint:
            workers = [
                ScriptedWorker(endpoint.url + link, population, f"w{number}")
                for number, (link, population) in enumerate(self.people)
            ]
            # By our own ids: the server's are random, and a careful worker fails one page in some hundred.
            done = run_workers(workers, ScriptedWork(truth_of, seed=0, key_of=lambda hit: str(hits[hit])))
        harvest(self.settings, SANDBOX)
        settle(self.settings, SANDBOX)
        return done.submitted


def bill(settings: Settings, request) -> list[str]:
    """What a dry run says before anything is posted."""
    lines: list[str] = []
    publish(settings, request, confirm=lambda total: True, dry_run=True, announce=lines.append)
    return lines


def kept_off(settings: Settings) -> list[set[str]]:
    """For each HIT that some are not offered, who these are, as the server has it."""
    query = """
        SELECT h.id, w.mturk_id FROM hit h JOIN hit_type y ON y.id = h.hit_type_id
        JOIN qualification_type t ON t.name LIKE '% met %' AND instr(y.requirements, t.mturk_id)
        JOIN qualification q ON q.qualification_type_id = t.id JOIN worker w ON w.id = q.worker_id
    """
    people: dict[int, set[str]] = defaultdict(set)
    with closing(sqlite3.connect(settings.project / "crowd.db")) as database:
        for hit, worker in database.execute(query):
            people[hit].add(worker)
    return list(people.values())
