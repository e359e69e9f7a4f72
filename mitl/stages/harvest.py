"""Harvesting: fetch what changed, keep it raw, parse, check, approve."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.crowd.answers import parse_answers
from mitl.crowd.client import ListedHit, MTurkClient
from mitl.crowd.endpoint import open_endpoint
from mitl.db.session import open_database, reading
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import open_work
from mitl.db.store.hits import BatchRow, HitRow
from mitl.errors import AnswerError
from mitl.hits.templates import load_template
from mitl.progress import Progress, no_progress
from mitl.records import (
    Decision,
    Environment,
    Finding,
    HitItem,
    HitState,
    ParsedAnswers,
    StageResult,
)
from mitl.settings import Settings
from mitl.stages.environment import choose_environment, require_same_server
from mitl.stages.judging import judge
from mitl.stages.paying import APPROVED, CarriedOut, book_payment, carry_out, has_open_calls
from mitl.stages.posting import reconcile

UNREADABLE = "unreadable"
_FINISHED = ("Reviewable", "Reviewing", "Disposed")


def harvest(
    settings: Settings,
    environment: Environment | None = None,
    *,
    reparse: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Bring the answers of an environment up to date and approve what passes its controls.

    Args:
        reparse: parse the stored raw documents again instead of fetching.
    """
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        out = hit_store.hits(session, chosen, (HitState.SENDING, HitState.POSTED))
        owed = has_open_calls(session, chosen)
        session.rollback()
        if reparse:
            return _reparse(session, chosen, settings.wordings, progress)
        if not out and not owed:
            return _nothing_to_do(session, chosen)
        with open_endpoint(settings, chosen) as endpoint:
            client = endpoint.client()
            listed = {hit.hit_id: hit for hit in client.list_hits()}
            # People may have worked on HITs whose publishing was interrupted before it heard of them.
            reconcile(session, settings.project_id, chosen, listed.values)
            require_same_server(session, endpoint, chosen)
            fetched = _fetch_all(
                session,
                client,
                chosen,
                listed,
                settings.wordings,
                charges_fee=endpoint.charges_fee,
                progress=progress,
            )
            judge(session, chosen)
            _close_expired(session, chosen, listed)
            session.commit()
            done = carry_out(
                session, client, settings, chosen, charges_fee=endpoint.charges_fee, progress=progress
            )
        return _result(session, chosen, fetched, done)


def _fetch_all(
    session: Session,
    client: MTurkClient,
    environment: Environment,
    listed: dict[str, ListedHit],
    wordings: Path,
    *,
    charges_fee: bool,
    progress: Progress,
) -> int:
    with reading(session):
        posted = hit_store.hits(session, environment, (HitState.POSTED,))
        stored = answer_store.stored_counts(session, environment)
    changed = []
    for hit in posted:
        found = listed.get(hit.mturk_hit_id or "")
        if found is not None and found.n_submitted > stored.get(hit.id, 0):
            changed.append(hit)
    if not changed:
        return 0
    with reading(session):
        items = hit_store.hit_items(session, [hit.id for hit in changed])
        batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
    fetched = 0
    with progress("harvest", len(changed)) as advance:
        for hit in changed:
            batch = batches[hit.batch_id]
            fetched += _fetch(session, client, batch, hit, items[hit.id], wordings, charges_fee=charges_fee)
            advance(1)
    return fetched


def _fetch(
    session: Session,
    client: MTurkClient,
    batch: BatchRow,
    hit: HitRow,
    items: list[HitItem],
    wordings: Path,
    *,
    charges_fee: bool,
) -> int:
    """Store the new submissions of one HIT, one transaction each; another harvest may do the same meanwhile."""
    assert hit.mturk_hit_id is not None
    rationale = load_template(batch.template, wordings).rationale
    count = 0
    for found in client.list_assignments(hit.mturk_hit_id):
        assignment_id = answer_store.add_assignment(
            session,
            hit_id=hit.id,
            worker_id=answer_store.worker_id(session, batch.environment, found.worker_id),
            mturk_assignment_id=found.assignment_id,
            accepted_at=found.accepted_at,
            submitted_at=found.submitted_at,
            status=found.status,
            raw_xml=found.answer_xml,
        )
        if assignment_id is not None:
            _parse_into(session, assignment_id, found.answer_xml, items, rationale=rationale)
            if found.status == APPROVED:  # by itself, because nobody harvested in time
                key = answer_store.submission_key(found.assignment_id, found.worker_id)
                book_payment(session, assignment_id, key, batch, charges_fee=charges_fee)
            count += 1
        session.commit()
    return count


def _parse_into(
    session: Session, assignment_id: int, xml: str, items: list[HitItem], *, rationale: bool
) -> None:
    places = [item.place for item in items]
    try:
        parsed = parse_answers(xml, places=places, rationale=rationale)
    except AnswerError as error:
        parsed = ParsedAnswers((), (Finding(UNREADABLE, str(error)),))
    answer_store.set_answers(session, assignment_id, parsed, items)


def _close_expired(session: Session, environment: Environment, listed: dict[str, ListedHit]) -> None:
    """HITs whose time is over and that nobody works on; what was not answered is open again."""
    undecided = Counter(
        row.hit_id for row in answer_store.assignments(session, environment, (Decision.NONE, Decision.QUEUED))
    )
    stored = answer_store.stored_counts(session, environment)
    over = []
    for hit in hit_store.hits(session, environment, (HitState.POSTED,)):
        found = listed.get(hit.mturk_hit_id or "")
        finished = found is not None and found.status in _FINISHED
        complete = found is not None and found.n_submitted <= stored.get(hit.id, 0)
        if finished and complete and not undecided[hit.id]:
            over.append(hit.id)
    hit_store.set_state(session, over, HitState.CLOSED)


def _reparse(session: Session, environment: Environment, wordings: Path, progress: Progress) -> StageResult:
    rows = answer_store.assignments(session, environment)
    items = hit_store.hit_items(session, [row.hit_id for row in rows])
    batches = hit_store.batches(session, environment)
    rationale = {batch.name: load_template(batch.template, wordings).rationale for batch in batches}
    with progress("reparse", len(rows)) as advance:
        for row in rows:
            xml = answer_store.raw_xml(session, row.id)
            _parse_into(session, row.id, xml, items[row.hit_id], rationale=rationale[row.batch])
            advance(1)
    judge(session, environment)
    session.commit()
    return StageResult(
        status="done" if rows else "nothing_to_do",
        counts={"environment": environment.value, "reparsed": len(rows)},
        lines=(
            f"parsed the raw answers of {len(rows):,} submissions again"
            if rows
            else "nothing to do: no submission is stored",
        ),
    )


def _nothing_to_do(session: Session, environment: Environment) -> StageResult:
    queued = answer_store.decision_counts(session, environment).get(Decision.QUEUED, 0)
    session.rollback()
    return StageResult(
        status="nothing_to_do",
        counts={"environment": environment.value, "fetched": 0, "approved": 0, "queued": queued},
        lines=(f"nothing to do: no HIT is out on {environment}",),
        next=f"mitl publish --{environment}, or mitl build-dataset --out DIR",
    )


def _result(session: Session, environment: Environment, fetched: int, done: CarriedOut) -> StageResult:
    decisions = answer_store.decision_counts(session, environment)
    waiting = open_work.open_work(session, environment).hits
    barren = len(open_work.barren_hits(session, environment))
    findings = Counter(
        finding.code for found in answer_store.findings(session, environment).values() for finding in found
    )
    session.rollback()
    queued = decisions.get(Decision.QUEUED, 0)
    approved = done.approved
    nothing = not (fetched or approved or done.rejected or done.excluded)
    lines = [
        f"{fetched:,} submissions fetched, {approved:,} approved; {queued:,} wait for a person, "
        f"{waiting:,} HITs are still out"
    ]
    if nothing:
        lines.insert(0, "nothing to do: no new answers")
    if queued:
        following = "mitl review"
    elif barren:
        following = f"mitl publish --{environment}, which asks again what could not be used"
    elif waiting > 0:
        following = "mitl harvest again when people have worked"
    else:
        following = "mitl build-dataset --out DIR"
    return StageResult(
        status="nothing_to_do" if nothing else "done",
        counts={
            "environment": environment.value,
            "fetched": fetched,
            "approved": approved,
            "queued": queued,
            "hits_out": waiting,
            "findings": dict(sorted(findings.items())),
        },
        lines=tuple(lines),
        next=following,
    )
