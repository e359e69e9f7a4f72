"""Operations on HITs and HIT types. Listings are oldest first, ten to a page unless told, without the questions."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from mitl.core.pricing import amount
from mitl.crowd_server.api import qualification_types, shapes
from mitl.crowd_server.api.registry import ApiCall, Reply, operation, refuse_parameters
from mitl.crowd_server.pages import questions
from mitl.crowd_server.protocol import qualifying
from mitl.crowd_server.protocol.errors import TurkError, out_of_range, present, turk, wrong_state
from mitl.crowd_server.store import accounts, hits
from mitl.crowd_server.store.database import Portion
from mitl.crowd_server.store.hits import HitRow, TypeRow, TypeValues

MONTH_S = 30 * 24 * 3600
YEAR_S = 365 * 24 * 3600
MAX_ASSIGNMENTS = 1_000_000_000
MANY = 10
"""From this many assignments on Amazon took a higher fee, so a HIT could not grow across it."""
EXTENDABLE_SINCE = dt.datetime(2015, 7, 22, tzinfo=dt.UTC)
"""Amazon changed its fees on this day; HITs from before it cannot be extended."""


@operation("CreateHITType", writes=True)
def create_hit_type(call: ApiCall) -> Reply:
    """Create a HIT type; the same values always return the same HIT type."""
    return {"HITTypeId": type_of_values(call).mturk_id}


def existing_type(call: ApiCall) -> TypeRow:
    """The HIT type that the request names."""
    mturk_id = call.params.entity("HITTypeId")
    return present(hits.find_type(call, mturk_id), "HITType", "HITTypeDoesNotExist", mturk_id)


def type_of_values(call: ApiCall) -> TypeRow:
    """The HIT type of the values in the request, made at its first use."""
    params = call.params
    values = TypeValues(
        title=params.text("Title", longest=128, required=True),
        description=params.text("Description", longest=2000, required=True),
        keywords=params.text("Keywords", longest=1000),
        reward_cents=params.cents("Reward"),
        duration_s=params.integer("AssignmentDurationInSeconds", 30, YEAR_S),
        auto_approval_s=params.integer("AutoApprovalDelayInSeconds", 0, MONTH_S, MONTH_S),
        requirements=qualification_types.read_requirements(call),
    )
    digest = hashlib.sha256(json.dumps(asdict(values), sort_keys=True).encode()).hexdigest()
    return hits.add_type(call, digest, values)


@operation("CreateHIT", writes=True)
def create_hit(call: ApiCall) -> Reply:
    """Create a HIT, with the properties of its HIT type in the same request."""
    return _post(call, type_of_values)


@operation("CreateHITWithHITType", writes=True)
def create_hit_with_hit_type(call: ApiCall) -> Reply:
    """Create a HIT of an existing HIT type."""
    return _post(call, existing_type)


@operation("GetHIT", writes=False)
def get_hit(call: ApiCall) -> Reply:
    """Return a HIT with its question; a deleted HIT has the status Disposed."""
    hit = find(call)
    return {"HIT": shapes.hit(hit, call.now, hits.question(call.connection, hit.id))}


@operation("UpdateExpirationForHIT", writes=True)
def update_expiration(call: ApiCall) -> None:
    """Change when a HIT expires, and how much money is held for it; a time in the past ends it now.

    As on MTurk, ending may be repeated, but the same later time is refused as a repeat for 24 hours.
    """
    hit = _undeleted(call, find(call))
    expires_at = call.params.time("ExpireAt")
    if expires_at > call.now + dt.timedelta(seconds=YEAR_S):
        raise out_of_range("ExpireAt", f"{expires_at:%Y-%m-%d}", "at most a year from now")
    if expires_at <= call.now:
        expires_at = min(hit.expires_at, call.now)
    else:
        _once(call, hit, expires_at)
    hits.change(call, hit.id, expires_at=expires_at)
    _reopen(call, hit)


@operation("UpdateHITTypeOfHIT", writes=True)
def update_hit_type(call: ApiCall) -> None:
    """Change the HIT type of a HIT; it never lowers the reward under a worker, nor changes one that was paid."""
    hit, hit_type = _undeleted(call, find(call)), existing_type(call)
    if hit_type.id == hit.type.id:
        return
    before, after = hit.type.reward_cents, hit_type.reward_cents
    if after != before and hits.is_promised(call, hit.id, lower=after < before):
        raise turk(
            "InvalidHITState",
            "Workers accepted this HIT, submitted it or were paid for it at its present reward, so it cannot be moved "
            f"to a HIT type that pays {amount(after)} instead of {amount(before)}; expire it and create a HIT of that "
            "type.",
        )
    accounts.change_type(call, hit.id, hit_type.id, after)


@operation("UpdateHITReviewStatus", writes=True)
def update_review_status(call: ApiCall) -> None:
    """Move a HIT from Reviewable to Reviewing, or back with Revert."""
    hit = find(call)
    revert = call.params.flag("Revert")
    wanted = "Reviewing" if revert else "Reviewable"
    if hit.status(call.now) != wanted:
        raise _wrong_state(call, hit, wanted)
    hits.set_reviewing(call, hit.id, not revert)


@operation("CreateAdditionalAssignmentsForHIT", writes=True)
def create_additional_assignments(call: ApiCall) -> None:
    """Add assignments to a HIT; one created with fewer than ten cannot be raised to ten or more."""
    hit = find(call)
    count = call.params.integer("NumberOfAdditionalAssignments", 1, MAX_ASSIGNMENTS)
    token = fresh_token(call, "extend", "AdditionalAssignmentsAlreadyAdded", "The assignments", "request")
    _undeleted(call, hit)
    if hit.created_at < EXTENDABLE_SINCE:
        raise turk("HITTooOldForExtension", "HITs created before July 22, 2015 cannot be extended.")
    if hit.max_assignments < MANY <= hit.max_assignments + count:
        raise turk(
            "InvalidMaximumAssignmentsIncrease",
            f"A HIT created with fewer than {MANY} assignments cannot be raised to {MANY} or more.",
        )
    if hit.max_assignments + count > MAX_ASSIGNMENTS:
        raise out_of_range("NumberOfAdditionalAssignments", count, f"at most {MAX_ASSIGNMENTS} in all")
    hits.add_slots(call, hit.id, count)
    _reopen(call, hit)
    accounts.remember(call, "extend", token, call.request_id)


@operation("DeleteHIT", writes=True)
def delete_hit(call: ApiCall) -> None:
    """Delete a reviewable HIT once every submission is approved or rejected; its records are kept."""
    hit = find(call)
    if hit.status(call.now) not in ("Reviewable", "Reviewing"):
        raise _wrong_state(call, hit, "Reviewing, Reviewable")
    if hit.undecided:
        # MTurk says that the state is wrong here too, though it is not.
        raise turk(
            "InvalidHITState",
            f"{hit.undecided} of this HIT's submitted assignments "
            f"{'is' if hit.undecided == 1 else 'are'} neither approved nor rejected; decide every one first.",
        )
    hits.change(call, hit.id, deleted_at=call.now)


def find(call: ApiCall) -> HitRow:
    """The HIT that the request names."""
    mturk_id = call.params.entity("HITId")
    return present(hits.find_hit(call, mturk_id), "Hit", "HITDoesNotExist", mturk_id)


def key(call: ApiCall) -> int:
    """The row of the HIT that the request names."""
    mturk_id = call.params.entity("HITId")
    return present(hits.hit_key(call, mturk_id), "Hit", "HITDoesNotExist", mturk_id)


def _wrong_state(call: ApiCall, hit: HitRow, allowed: str) -> TurkError:
    """The error for a HIT in a state that does not allow the operation: MTurk's words, and what put it there."""
    status = hit.status(call.now)
    reasons = {
        "Assignable": "Workers can still accept it; UpdateExpirationForHIT to a time that is past ends that.",
        "Unassignable": f"Workers hold {hit.pending} of its assignments and may still submit.",
        "Reviewing": "UpdateHITReviewStatus marked it so, and with Revert takes that back.",
        "Reviewable": "No further work will come.",
        "Disposed": "It was deleted, or disposed of 120 days after its expiry.",
    }
    return wrong_state("HIT", status, allowed, reasons[status])


def fresh_token(call: ApiCall, kind: str, code: str, noun: str, what: str) -> str:
    """The UniqueRequestToken, empty where absent; an error where the last 24 hours saw it, naming what it made then."""
    token = call.params.text("UniqueRequestToken", shortest=1, longest=64)
    if token:
        earlier = accounts.recall(call, kind, token)
        if earlier is not None:
            raise turk(code, f"{noun} with this UniqueRequestToken already exist; {what} {earlier}.")
    return token


def _undeleted(call: ApiCall, hit: HitRow) -> HitRow:
    if hit.deleted_at is not None:
        raise _wrong_state(call, hit, "Assignable, Unassignable, Reviewable, Reviewing")
    return hit


def _once(call: ApiCall, hit: HitRow, expires_at: dt.datetime) -> None:
    """Refuse the time that an earlier call set and that still holds; remember a new one."""
    token = f"{hit.mturk_id}{expires_at:%a %b %d %H:%M:%S.%f UTC %Y}"
    earlier = accounts.recall(call, "expire", token)
    if earlier is None:
        accounts.remember(call, "expire", token, call.request_id)
    elif hit.expires_at == expires_at:
        raise turk(
            "IdempotencyTokenAlreadyProcessed", f'The idempotency token "{token}" has already been processed.'
        )


def _reopen(call: ApiCall, hit: HitRow) -> None:
    """Lift the requester's marker from a HIT that takes work again, or its new answers would go unnoticed."""
    if hit.reviewing:
        now = find(call)
        if now.status(call.now) in ("Assignable", "Unassignable"):
            hits.set_reviewing(call, hit.id, False)


def _post(call: ApiCall, type_of: Callable[[ApiCall], TypeRow]) -> Reply:
    params = call.params
    token = fresh_token(call, "hit", "HitAlreadyExists", "HITs", "HIT")
    refuse_parameters(params)
    question = params.text("Question", required=True)
    questions.check(question, call.sources)
    hit = hits.add_hit(
        call,
        type_of(call),
        question=question,
        annotation=params.text("RequesterAnnotation", longest=255),
        max_assignments=params.integer("MaxAssignments", 1, MAX_ASSIGNMENTS, 1),
        lifetime_s=params.integer("LifetimeInSeconds", 30, YEAR_S),
    )
    accounts.remember(call, "hit", token, hit.mturk_id)
    return {"HIT": shapes.hit(hit, call.now)}


@operation("ListHITs", writes=False)
def list_hits(call: ApiCall) -> Reply:
    """List all HITs that have not been deleted."""
    return _listed(call, partial(hits.list_hits, call))


@operation("ListReviewableHITs", writes=False)
def list_reviewable_hits(call: ApiCall) -> Reply:
    """List the HITs that will receive no more work, either Reviewable or Reviewing."""
    is_reviewing = call.params.choice("Status", ("Reviewable", "Reviewing"), "Reviewable") == "Reviewing"
    type_id = existing_type(call).id if call.params.has("HITTypeId") else None
    return _listed(call, partial(hits.list_reviewable, call, hit_type_id=type_id, reviewing=is_reviewing))


@operation("ListHITsForQualificationType", writes=False)
def list_hits_for_qualification_type(call: ApiCall) -> Reply:
    """List the HITs that have a requirement on a qualification type, which may be one of MTurk's own."""
    type_id = call.params.entity("QualificationTypeId")
    if type_id not in qualifying.SYSTEM_TYPES:
        qualification_types.known_type(call, type_id)
    return _listed(call, partial(hits.list_requiring, call, qualification_types.mention(type_id)))


def _listed(call: ApiCall, rows_of: Callable[[Portion], Sequence[HitRow]]) -> Reply:
    return call.listed("HITs", rows_of, lambda row: shapes.hit(row, call.now))
