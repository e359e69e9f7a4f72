"""What is open: pairs to ask, HITs to ask again, work that is out and the money it holds."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, case, func, select, text
from sqlalchemy.orm import Session

from mitl.core.arrays import Flags, Ints, contains, distinct, pack_ids, pack_pairs, spans, unpack_pairs
from mitl.core.pricing import LostPages
from mitl.db.models import Assignment, Batch, Hit, HitItemRow, Journal, JudgementRow, PairRow, Round, Worker
from mitl.db.store import audits as audit_store
from mitl.db.store import items as item_store
from mitl.db.store.commitments import SUBMITTED, paid_by
from mitl.db.store.hits import LIVE_STATES, StoredHit, batches, hits_of, replaced_by
from mitl.db.store.ledger import answer_tables
from mitl.db.store.proposals import known_pairs, packed_rows, pairs_of_rows
from mitl.db.store.statements import (
    AT_PLACE,
    KEPT,
    number_columns,
    numbers_among,
    query_hits,
    query_submissions,
    rows_among,
)
from mitl.db.store.worker_tallies import Tallies, tallies_of
from mitl.records import Environment, HitState, JournalState, JudgementSource, Label, Pair, PairRole
from mitl.records.enums import UNDECIDED
from mitl.records.frames import LABELS

_ASKED = tuple(role for role in PairRole if role.is_asked)
ANSWERING = (PairRole.CANDIDATE, PairRole.OVERLAP)
"""Roles in which a page out there will answer for its pair."""


@dataclass(frozen=True, slots=True)
class HitToReplace:
    """A closed HIT without a successor that leaves something to be asked again."""

    hit: StoredHit
    missing: int
    """Workers whose usable answers are still wanted."""
    pairs: tuple[Pair, ...] = ()
    """What is to be asked, where that is less than the whole page."""
    audits: tuple[Pair, ...] = ()
    """Questions of an audit that are to be asked beside these, as audit questions again."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What is out with the crowd."""

    hits: int
    """Posted HITs that still wait for a worker."""
    assignments: int
    """Submissions that are still to come."""
    held_cents: int
    """Rewards promised for what is not decided yet."""
    ended: int
    """Of these HITs, those that were ended early and given no time since: nobody new may take them."""


@dataclass(frozen=True, slots=True)
class PairCounts:
    """How many pairs there are and where they stand, counted by the database."""

    candidates: int
    """Proposed by any annotator, in any direction."""
    open: int
    """Those that are on no live HIT, have neither a usable judgement nor a machine label and may be asked."""
    excluded: int
    """Those that would be open, but that exclusion lists name."""
    judged: int
    """Pairs with a usable judgement, past work included."""


def pair_counts(session: Session, environment: Environment, tallies: Tallies | None = None) -> PairCounts:
    """The sizes of `candidate_pairs`, of those that `asked_pairs` lacks, with `left_out` and without, and of
    `usable_workers`.

    Args:
        tallies: those of this environment, where they are at hand.
    """
    n_pairs = session.scalar(select(func.count()).select_from(PairRow)) or 0
    unproposed = number_columns(session, "SELECT id FROM pair WHERE NOT proposed", 1)[0]
    out = number_columns(session, _OUT.format(environment=environment.value), 1)[0]
    judged = (tallies or tallies_of(session, environment)).judged
    labelled = audit_store.labelled_rows(session, environment)
    newest = max((int(rows.max()) for rows in (unproposed, out, judged, labelled) if len(rows)), default=0)
    asked = np.zeros(newest + 1, np.bool_)  # by row of the pair; to sort millions takes longer
    asked[judged] = True
    n_judged = int(asked.sum())
    asked[out] = True
    asked[labelled] = True
    asked[unproposed] = False
    candidates = n_pairs - len(unproposed)
    unasked = candidates - int(asked.sum())
    excluded = 0
    if item_store.exclusions(session):
        rows, left, right = number_columns(session, _NAMED, 3)
        named = rows[left_out(session, environment, pack_ids(left, right))]
        excluded = int((~contains(np.flatnonzero(asked), named)).sum())
    return PairCounts(candidates, unasked - excluded, excluded, n_judged)


_NAMED = """
SELECT id, left_id, right_id FROM pair
WHERE proposed AND (left_id IN (SELECT left_id FROM exclusion) OR right_id IN (SELECT right_id FROM exclusion))
"""
"""Those pairs, and more, that exclusion lists name: the database looks through millions faster than Python."""


def left_out(session: Session, environment: Environment, pairs: Ints) -> Flags:
    """(n,) which packed pairs nobody is asked about, as an exclusion list names them: no release would use the answers.

    The sample for machine labels is asked whole all the same: it bounds nothing without some of its pairs.
    """
    named = item_store.excluded(session).name(pairs)
    if named.any():
        named &= ~contains(pack_pairs(audit_store.drawn_for_labels(session, environment)), pairs)
    return named


def left_out_of(session: Session, environment: Environment, pairs: Collection[Pair]) -> set[Pair]:
    """Those of these pairs that are `left_out`."""
    if not item_store.exclusions(session):
        return set()
    packed = pack_pairs(pairs)
    return set(unpack_pairs(packed[left_out(session, environment, packed)]))


_OUT = f"""
    SELECT i.pair_id FROM hit h JOIN batch b ON b.id = h.batch_id JOIN hit_item i ON i.hit_id = h.id
    WHERE b.environment = '{{environment}}' AND i.role IN ({", ".join(f"'{role}'" for role in ANSWERING)})
        AND h.state IN ({", ".join(f"'{state}'" for state in LIVE_STATES)})"""


def live_pairs(
    session: Session, environment: Environment, *, roles: Collection[PairRole] = (PairRole.CANDIDATE,)
) -> set[Pair]:
    """The candidates on HITs that are planned, on their way or out.

    Args:
        roles: in which they are asked there.
    """
    query = (
        query_hits(environment, PairRow.left_id, PairRow.right_id)
        .join(HitItemRow, HitItemRow.hit_id == Hit.id)
        .join(PairRow, PairRow.id == HitItemRow.pair_id)
        .where(Hit.state.in_(list(LIVE_STATES)), HitItemRow.role.in_(roles))
    )
    return {Pair(*row) for row in session.execute(query)}


def _usable(environment: Environment, roles: Collection[PairRole], *values: Any) -> Select[*tuple[Any, ...]]:
    """The query for each pair with usable answers in these roles, and for values that are made of these answers."""
    return (
        query_submissions(environment, PairRow.left_id, PairRow.right_id, *values)
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .join(PairRow, PairRow.id == JudgementRow.pair_id)
        .join(HitItemRow, AT_PLACE)
        .where(JudgementRow.usable.is_(True), HitItemRow.role.in_(roles))
        .group_by(PairRow.left_id, PairRow.right_id)
    )


def usable_workers(session: Session, environment: Environment) -> dict[Pair, int]:
    """How many different workers have judged each pair usably; answers on controls do not count."""
    query = _usable(environment, _ASKED, func.count(Assignment.worker_id.distinct()))
    return {Pair(image, caption): count for image, caption, count in session.execute(query)}


def answered_by(
    session: Session, environment: Environment, pairs: Collection[Pair]
) -> dict[Pair, frozenset[str]]:
    """Those of these pairs that were judged usably where they were asked → the workers, by their ids on the requester
    API: no further answer of theirs counts."""
    if not pairs:
        return {}
    judged = distinct(tallies_of(session, environment).judged.astype(np.int64))
    wanted = distinct(pack_pairs(pairs))
    stored, rows = known_pairs(session, wanted, item_store.pair_sides(session))
    answered = rows[contains(wanted, stored) & contains(judged, rows)].tolist()
    query = (
        query_submissions(environment, PairRow.left_id, PairRow.right_id, Worker.mturk_worker_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .join(PairRow, PairRow.id == JudgementRow.pair_id)
        .join(HitItemRow, AT_PLACE)
        .where(JudgementRow.usable.is_(True), HitItemRow.role.in_(_ASKED))
    )
    workers: dict[Pair, set[str]] = defaultdict(set)
    for left, right, worker in rows_among(session, query, JudgementRow.pair_id, answered):
        workers[Pair(left, right)].add(worker)
    return {pair: frozenset(who) for pair, who in workers.items()}


def own_answers(session: Session, environment: Environment) -> Ints:
    """The packed pairs that workers of the project's own crowd judged usably where they were asked, once for each."""
    query = _usable(environment, _ASKED, func.count(Assignment.worker_id.distinct()))
    left, right, workers = number_columns(session, query.where(Batch.source == JudgementSource.CROWD), 3)
    return np.repeat(pack_ids(left, right), workers)


def answered_again(session: Session, environment: Environment, round_id: int) -> dict[Pair, tuple[int, int]]:
    """Of each pair that HITs of a round have usable answers on, the matches less the others among all its answers.

    Returns:
        pair → (now, without that round's HITs); 0 where workers are evenly divided. Where none had answered, a match
        or none by the machine's label that stood when the round was opened, or 0.
    """
    balance = case((JudgementRow.label.in_([label for label in Label if label.is_positive]), 1), else_=-1)
    is_own = case((paid_by(session, environment, round_id), 1), else_=0)
    values = func.sum(balance), func.sum(balance * (1 - is_own)), func.sum(1 - is_own)
    query = _usable(environment, _ASKED, *values).having(func.max(is_own) == 1)
    opened = session.get_one(Round, round_id).opened_at
    labels = audit_store.machine_labels(session, environment, opened)
    machine = {
        pair: 1 if LABELS[label].is_positive else -1
        for pair, label in zip(unpack_pairs(labels["pair"].to_numpy()), labels["label"], strict=True)
    }
    return {
        Pair(*pair): (int(now), int(before) if others else machine.get(Pair(*pair), 0))
        for *pair, now, before, others in session.execute(query)
    }


def undecided(session: Session, environment: Environment, round_id: int, pairs: Sequence[Pair]) -> list[Pair]:
    """Those of a round's doubts that no HIT of it has a usable answer on, or on which workers are evenly divided, but
    for what is `left_out`."""
    answered = answered_again(session, environment, round_id)
    out = left_out_of(session, environment, pairs)
    return [pair for pair in pairs if pair not in out and (pair not in answered or not answered[pair][0])]


def lost_pages(session: Session, environment: Environment) -> LostPages:
    """The settled submissions about pairs, those of which no answer can be used, and how few workers gave them."""
    is_usable = func.max(case((JudgementRow.usable, 1), else_=0)).label("is_usable")
    usable = (
        query_submissions(environment, Assignment.worker_id, is_usable)
        .join(JudgementRow, JudgementRow.assignment_id == Assignment.id)
        .where(Batch.source == JudgementSource.CROWD, Assignment.status != SUBMITTED)
        .group_by(JudgementRow.assignment_id, Assignment.worker_id)
        .subquery()
    )
    by_worker = select(func.count(), func.sum(usable.c.is_usable)).group_by(usable.c.worker_id)
    pages, used = np.array(session.execute(by_worker).all(), np.int64).reshape(-1, 2).T
    answered = int(pages.sum())
    twice = int((pages * (pages - 1)).sum()) / max(answered * (answered - 1), 1)
    return LostPages(answered, answered - int(used.sum()), twice)


def asked_pairs(session: Session, environment: Environment) -> set[Pair]:
    """The pairs that need not be asked: on a HIT that is not closed, judged usably, or labelled by machine.

    A second opinion that is out answers also for a pair whose first answer was lost.
    """
    out = live_pairs(session, environment, roles=ANSWERING)
    labelled = pairs_of_rows(session, audit_store.labelled_rows(session, environment))
    return {*out, *usable_workers(session, environment), *labelled}


def hits_to_replace(
    session: Session, environment: Environment, tallies: Tallies | None = None
) -> list[HitToReplace]:
    """Closed HITs without a successor that leave something to be asked again; past work from files is never.

    A HIT of candidates counts where fewer of its submissions were usable than workers were wanted, for those of its
    pairs that lack usable answers beside a second opinion and are on no other HIT. A HIT of overlaps counts for the
    pairs that no second worker has judged usably: a second opinion of the first worker is none. Either counts with the
    HITs that it replaces, whose answers may have been lost since. What is `left_out` is not asked again. Its audit
    questions go with a HIT that is asked again, as far as their audit still wants them; those that no such HIT takes
    are open.

    Args:
        tallies: those of this environment, where they are at hand.
    """
    assignments = {
        row.id: row.assignments
        for row in batches(session, environment)
        if row.source is not JudgementSource.IMPORT
    }
    overlaps = _overlap_hits(session, environment)
    tallies = tallies or tallies_of(session, environment)
    newest = session.scalar(select(func.max(Hit.id))) or 0
    of_hit = np.bincount(tallies.hits, minlength=newest + 1)
    before = replaced_by(session)
    closed = hits_of(session, _lacking(session, environment, assignments, overlaps, of_hit, before))
    if not closed:
        return []
    tries = [[hit.id, *before.get(hit.id, ())] for hit in closed]
    enough = np.array([assignments[hit.batch_id] for hit in closed])
    is_second = np.array([hit.id in overlaps for hit in closed])
    in_all = np.array([of_hit[chain].sum() for chain in tries])
    on_last = np.array([hit.assignments for hit in closed]) - of_hit[[hit.id for hit in closed]]
    missing = np.where(is_second, 1, np.maximum(on_last, enough - in_all)).tolist()
    page, row, role, is_on_last = _on_pages(session, tries)
    asks = role == np.where(is_second, _ROLES.index(PairRole.OVERLAP), _ROLES.index(PairRole.CANDIDATE))[page]
    lost, pairs = _lost_pairs(
        session,
        environment,
        np.stack([page[asks], row[asks]]),
        np.where(is_second, 0, enough)[page[asks]],
        tallies.judged,
        _second_opinions(session, overlaps),
    )
    is_audit = (role == _ROLES.index(PairRole.AUDIT)) & (is_on_last == 1)
    questions: dict[int, list[Pair]] = defaultdict(list)
    for number, pair in zip(page[is_audit].tolist(), pairs_of_rows(session, row[is_audit]), strict=True):
        questions[number].append(pair)
    wants = audit_store.open_questions(session, environment) if questions else Counter[Pair]()
    bounds = np.searchsorted(lost, np.arange(len(closed) + 1)).tolist()
    replaced = []
    for number, (hit, (begin, end)) in enumerate(zip(closed, pairwise(bounds), strict=True)):
        audits = tuple(pair for pair in questions.get(number, ()) if wants[pair] > 0)
        if begin < end or audits:
            wants.subtract(dict.fromkeys(audits, missing[number]))
            replaced.append(HitToReplace(hit, missing[number], tuple(pairs[begin:end]), audits))
    return replaced


_ROLES = (*ANSWERING, PairRole.AUDIT)
_ITEMS = f"""
    SELECT hit_id, place, pair_id, CASE role {" ".join(f"WHEN '{r}' THEN {n}" for n, r in enumerate(_ROLES))} END
    FROM hit_item WHERE role IN ({", ".join(f"'{role}'" for role in _ROLES)}) AND"""


def _on_pages(session: Session, tries: Sequence[Sequence[int]]) -> Ints:
    """What may have to be asked again of what stands on these pages.

    Args:
        tries: HITs, each with those that it replaces, latest first.

    Returns:
        (4, n): place in ``tries``, the pair's row, place of its role in `_ROLES`, 1 where it stands on the first HIT of
        the tries and 0 else; in the order of ``tries``, then by place on the page.
    """
    hits = np.array([id_ for chain in tries for id_ in chain])
    hit, place, row, role = numbers_among(session, _ITEMS, 4, "hit_id", distinct(hits).tolist())
    order = np.lexsort((place, hit))
    begins, ends = (np.searchsorted(hit, hits, side, sorter=order) for side in ("left", "right"))
    at = order[spans(begins, ends)]
    page = np.repeat(np.repeat(np.arange(len(tries)), [len(chain) for chain in tries]), ends - begins)
    return np.stack([page, row[at], role[at], hit[at] == np.array([chain[0] for chain in tries])[page]])


def _lost_pairs(
    session: Session,
    environment: Environment,
    asked: Ints,
    wanted: Ints,
    judged: NDArray[np.int32],
    again: Ints,
) -> tuple[Ints, list[Pair]]:
    """The pages, and the pairs, that are to be asked again.

    Args:
        asked: (2, n), pages in the order in which they are asked again, and rows of pairs that they asked.
        wanted: (n,) workers who are to judge a pair beside a second opinion; 0 where the page asks for that.
        judged: rows of pairs, once for each worker with a usable answer.
        again: ascending rows of pairs with a usable second opinion.
    """
    page, row = asked
    rows = distinct(row)
    out = np.sort(
        number_columns(session, query_hits(environment, Hit.id).where(Hit.state.in_(LIVE_STATES)), 1)[0]
    )
    column, values = ("hit_id", out) if len(out) < len(rows) else ("pair_id", rows)
    hit, candidate = numbers_among(session, _CANDIDATES, 2, column, values.tolist())
    taken = np.append(candidate[contains(out, hit)], audit_store.labelled_rows(session, environment))
    is_second, has_second = wanted == 0, contains(again, row)
    answered = np.bincount(judged, minlength=row.max(initial=0) + 1)[row] - has_second
    lacks = np.where(is_second, ~has_second, (answered < wanted) & ~contains(np.sort(taken), row))
    page, row, is_second = page[lacks], row[lacks], is_second[lacks]
    # A page asks each pair once, and a pair that one page asks again is a candidate of no other.
    by_page = page * (row.max(initial=0) + 1) + row
    first, on_page = (np.unique(values, return_index=True)[1] for values in (row, by_page))
    kept = distinct(np.append(first[~is_second[first]], on_page[is_second[on_page]]))
    packed = packed_rows(session, row[kept])
    is_asked = ~left_out(session, environment, packed)
    return page[kept][is_asked], unpack_pairs(packed[is_asked])


_CANDIDATES = f"SELECT hit_id, pair_id FROM hit_item WHERE role = '{PairRole.CANDIDATE}' AND"


def _lacking(
    session: Session,
    environment: Environment,
    batches: Mapping[int, int],
    overlaps: Collection[int],
    usable: NDArray[np.int64],
    before: Mapping[int, Sequence[int]],
) -> list[int]:
    """The closed HITs that none replaces, and whose submissions, or those on them and on what they replace, are not all
    usable.

    Args:
        batches: whose HITs they are → how many workers each wants.
        usable: (HITs,) submissions that are.
        before: see `mitl.db.store.hits.replaced_by`.
    """
    ours, overlapping = (np.array(sorted(rows), np.int64) for rows in (batches, overlaps))
    replaced = np.array([hit for earlier in before.values() for hit in earlier], np.int64)
    in_all = usable.copy()
    for last, earlier in before.items():
        in_all[last] += usable[earlier].sum()
    wanted = np.zeros(max(batches, default=0) + 1, np.int64)
    wanted[list(batches)] = list(batches.values())
    most = max(session.scalar(select(func.max(Hit.assignments))) or 0, wanted.max())
    doubtful = distinct(np.concatenate([np.flatnonzero(usable < most), overlapping])).tolist()
    closed = _CLOSED.format(environment=environment.value)
    hit, batch, assignments = (
        number_columns(session, closed, 3)
        if len(doubtful) > _MANY
        else numbers_among(session, f"{closed} AND", 3, "h.id", doubtful)
    )
    is_ours = contains(ours, batch)
    too_few = (usable[hit] < assignments) | (in_all[hit] < wanted[np.where(is_ours, batch, 0)])
    lacks = is_ours & (too_few | contains(overlapping, hit))
    return sorted(hit[lacks & ~contains(np.sort(replaced), hit)].tolist())


_MANY = 50_000
"""HITs beyond which to read all takes no longer than to look for each."""
_CLOSED = """
    SELECT h.id, h.batch_id, h.assignments FROM hit h JOIN batch b ON b.id = h.batch_id
    WHERE b.environment = '{environment}' AND h.state = 'closed'"""


def _second_opinions(session: Session, hits: Collection[int]) -> Ints:
    """Ascending rows of pairs that a second worker has judged usably on these HITs of overlaps."""
    return distinct(numbers_among(session, _SECOND, 1, "i.hit_id", sorted(hits))[0])


_SECOND = f"""
    SELECT j.pair_id FROM hit_item i JOIN assignment a ON a.hit_id = i.hit_id
    JOIN judgement j ON j.assignment_id = a.id AND j.place = i.place
    WHERE i.role = '{PairRole.OVERLAP}' AND j.usable AND"""


def _overlap_hits(session: Session, environment: Environment) -> set[int]:
    query = (
        query_hits(environment, HitItemRow.hit_id)
        .join(HitItemRow, HitItemRow.hit_id == Hit.id)
        .where(text("hit_item.role = 'overlap'"))  # as its index has it
        .distinct()
    )
    return set(session.scalars(query))


def open_work(session: Session, environment: Environment) -> OpenWork:
    """What is out: per posted HIT, the workers that are wanted less those who submitted or were decided about."""
    no_decision = ((Assignment.id.is_(None), 0), (Assignment.decision.in_(UNDECIDED), 0))
    decided = func.sum(case(*no_decision, else_=1))
    query = (
        query_hits(
            environment, Hit.id, Hit.assignments, Batch.reward_cents, func.count(Assignment.id), decided
        )
        .outerjoin(Assignment, Assignment.hit_id == Hit.id)
        .where(Hit.state == HitState.POSTED)
        .group_by(Hit.id, Hit.assignments, Batch.reward_cents)
    )
    waiting: list[int] = []
    to_come = held = 0
    for hit_id, assignments, reward, submitted, decided in session.execute(query):
        missing = max(assignments - submitted, 0)
        if missing:
            waiting.append(hit_id)
        to_come += missing
        held += max(assignments - (decided or 0), 0) * reward
    over = _ended(session)
    ended = sum(hit.key in over for hit in hits_of(session, waiting)) if over else 0
    return OpenWork(len(waiting), to_come, held, ended)


def _ended(session: Session) -> set[str]:
    """Keys of the HITs whose time was last set by ending them."""
    calls = select(Journal.kind, Journal.key).where(
        Journal.kind.in_(("expire", "extend")), Journal.state == JournalState.DONE
    )
    over: dict[str, bool] = {}
    for kind, key in session.execute(calls.order_by(Journal.id)):
        name = key.rpartition(":")[0]  # the calls on a HIT are numbered; those that set a later time say so
        if kind == "expire" or name.endswith(":until"):
            over[name.removesuffix(":until")] = kind == "expire"
    return {name for name, is_over in over.items() if is_over}


@dataclass(frozen=True, slots=True)
class MeasuredPage:
    """What one submission's page measured."""

    places: int
    """Places whose time was measured."""
    active_ms: int
    """On those places together, as the page claims."""
    accepted_at: dt.datetime | None
    submitted_at: dt.datetime | None


def pilot_progress(session: Session, batch_id: int) -> tuple[int, int]:
    """HITs of a pilot that are not closed, and all of them; what asks again later is no part of it."""
    query = select(
        func.coalesce(func.sum(case((Hit.state.in_(list(LIVE_STATES)), 1), else_=0)), 0), func.count()
    ).where(Hit.batch_id == batch_id, Hit.attempt == 1)
    out, hits = session.execute(query).one()
    return int(out), int(hits)


def measured_pages(session: Session, batch_id: int) -> list[MeasuredPage]:
    """The submissions of a batch whose answers are kept, in order of arrival; those that measured nothing are left
    out. A batch's answers are in one of the tables, whatever it asks."""
    pages = []
    for answers in answer_tables():
        query = (
            select(
                func.count(), func.sum(answers.c.active_ms), Assignment.accepted_at, Assignment.submitted_at
            )
            .join(Assignment, Assignment.id == answers.c.assignment_id)
            .join(Hit, Hit.id == Assignment.hit_id)
            .where(Hit.batch_id == batch_id, answers.c.active_ms > 0, Assignment.decision.in_(KEPT))
            .group_by(Assignment.id, Assignment.accepted_at, Assignment.submitted_at)
            .order_by(Assignment.id)
        )
        pages += [
            MeasuredPage(places, int(active_ms or 0), accepted_at, submitted_at)
            for places, active_ms, accepted_at, submitted_at in session.execute(query)
        ]
    return pages
