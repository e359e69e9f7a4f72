"""A project with many planned HITs of 20 pairs, and people's answers to them, for measuring publish and harvest."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine, insert, select, update

from mitl.campaign.posting import token
from mitl.crowd_server import admin
from mitl.crowd_server.protocol.ids import entity_id, worker_id
from mitl.crowd_server.store.models import AssignmentState, CrowdAssignment, CrowdHit, CrowdWorker
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.protocol.answer_xml import answers_xml
from mitl.records import Caption, Environment, HitItem, IdKind, Image, Page, Pair, PairRole, RetrievalSet
from mitl.settings import AUTO_APPROVAL_S, Settings, load
from mitl.stages.setup.init import ensure_config, init
from mitl.stages.setup.loading import Loaded

SANDBOX = Environment.SANDBOX
CANDIDATES = 18
IMAGES = 2000
CAPTIONS = 5 * IMAGES
HITS_PER_WORKER = 30
PAGES_PER_GOLD = 3


def make_project(folder: Path, n_hits: int, *, template: str, url: str) -> Settings:
    """A project of 2,000 images whose HITs are planned and not yet posted, for the crowd server at ``url``."""
    ensure_config(folder, "measured", 0, {"dataset": {"kind": "table"}})
    settings = replace(load(folder, environ={}), endpoint=url, endpoint_environment=SANDBOX)
    init(settings, Loaded(_data()))
    with open_database(settings.db_url) as session:
        now = dt.datetime.now(dt.UTC)
        batch = hit_store.add_batch(
            session,
            hit_store.NewBatch(
                round_id=hit_store.open_round(session, item_store.dataset(session).id, SANDBOX, now),
                environment=SANDBOX,
                direction="both",
                template=template,
                reward_cents=170,
                assignments=1,
                seed=0,
                planned_at=now,
            ),
        )
        new = [
            hit_store.NewHit(page, 1, None, 1, token(settings.project_id, batch.name, page.number, 1))
            for page in _pages(n_hits)
        ]
        hit_store.add_items(session, hit_store.insert_hits(session, batch.id, new))
        session.commit()
    return settings


def _data() -> RetrievalSet:
    images = [Image(str(n), url=f"https://pictures.example/{n:012d}.jpg") for n in range(1, IMAGES + 1)]
    captions = [
        Caption(str(n), str((n - 1) // 5 + 1), f"A man in a red jacket throws ball number {n} to his dog.")
        for n in range(1, CAPTIONS + 1)
    ]
    return RetrievalSet("measured", "table", IdKind.INTEGER, tuple(images), tuple(captions))


def _pages(n_hits: int) -> Iterator[Page[HitItem]]:
    golds = -(-n_hits // PAGES_PER_GOLD)
    for number in range(1, n_hits + 1):
        drawn = random.Random(number)
        first = (number - 1) * CANDIDATES
        placed = [(_pair(first + place), PairRole.CANDIDATE) for place in range(CANDIDATES)]
        gold = n_hits * CANDIDATES + number % golds
        placed += [(_pair(gold), PairRole.GOLD_POSITIVE), (_pair(gold + golds), PairRole.GOLD_NEGATIVE)]
        drawn.shuffle(placed)
        yield Page(number, tuple(HitItem(place, pair, role) for place, (pair, role) in enumerate(placed, 1)))


def _pair(number: int) -> Pair:
    """The pair of this number; no two are alike."""
    turn, image = divmod(number, IMAGES)
    return Pair(image + 1, (number + 97 * turn) % CAPTIONS + 1)


def answer_all(engine: Engine, settings: Settings, share: float = 1.0) -> int:
    """Write one submission for this share of the posted HITs straight into the crowd server; returns how many.

    People would need weeks. Each person does 30 HITs and passes the controls; the rest is drawn.
    """
    with open_database(settings.db_url, read_only=True) as session:
        posted = hit_store.hits(session, SANDBOX)
        pages = hit_store.hit_items(session, [hit.id for hit in posted])
    pages_of = {hit.mturk_hit_id: pages[hit.id] for hit in posted}
    wanted = sorted(hit_id for hit_id in pages_of if hit_id)[: round(share * len(posted))]
    people = -(-len(wanted) // HITS_PER_WORKER)
    admin.invite(engine, SANDBOX)
    now = dt.datetime.now(dt.UTC)
    with engine.begin() as connection:
        names = [{"environment": SANDBOX, "mturk_id": worker_id(), "invitation_id": 1} for _ in range(people)]
        connection.execute(insert(CrowdWorker), [one | {"created_at": now} for one in names])
        workers = list(connection.scalars(select(CrowdWorker.id).order_by(CrowdWorker.id)))[-people:]
        ids = dict(connection.execute(select(CrowdHit.mturk_id, CrowdHit.id)).all())
        rows = []
        for number, hit in enumerate(wanted):
            done_at = now - dt.timedelta(seconds=len(wanted) - number)
            rows.append(
                {
                    "environment": SANDBOX,
                    "hit_id": ids[hit],
                    "worker_id": workers[number // HITS_PER_WORKER],
                    "mturk_id": entity_id(),
                    "state": AssignmentState.SUBMITTED,
                    "accepted_at": done_at - dt.timedelta(minutes=8),
                    "deadline_at": done_at + dt.timedelta(minutes=52),
                    "submitted_at": done_at,
                    "auto_approve_at": done_at + dt.timedelta(seconds=AUTO_APPROVAL_S),
                    "decided_at": None,
                    "feedback": "",
                    "answer": answers_xml(_fields(pages_of[hit], random.Random(number))),
                }
            )
        connection.execute(insert(CrowdAssignment), rows)
        done = [row["hit_id"] for row in rows]
        for start in range(0, len(done), 500):
            connection.execute(
                update(CrowdHit).where(CrowdHit.id.in_(done[start : start + 500])).values(slots_left=0)
            )
    return len(rows)


def _fields(items: Sequence[HitItem], drawn: random.Random) -> Iterator[tuple[str, str]]:
    for item in items:
        label = drawn.choice(("yes", "weak_yes", "weak_no", "no"))
        if item.role is PairRole.GOLD_POSITIVE:
            label = "yes"
        elif item.role is PairRole.GOLD_NEGATIVE:
            label = "no"
        name = f"p{item.place:02d}"
        yield f"{name}_label", label
        yield f"{name}_outcome", "answered"
        if label.startswith("weak"):
            yield f"{name}_shortcoming", "described_wrongly"
            yield f"{name}_concept", "color"
        yield f"{name}_ms", str(drawn.randint(4000, 40000))
