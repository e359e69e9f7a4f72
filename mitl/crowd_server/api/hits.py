"""Operations on HIT types and HITs."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mitl.crowd_server import qualifying
from mitl.crowd_server.api import questions, shapes
from mitl.crowd_server.api.params import Params
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.errors import TurkError, absent, invalid, missing, out_of_range, turk
from mitl.crowd_server.store import hit_types, hits, qualifications, settling, tokens
from mitl.crowd_server.store.hit_types import TypeRow, TypeValues
from mitl.crowd_server.store.hits import HitRow

MONTH_S = 30 * 24 * 3600
YEAR_S = 365 * 24 * 3600
MAX_ASSIGNMENTS = 1_000_000_000
MANY = 10
"""From this many assignments on Amazon took a higher fee, so a HIT could not grow across it."""
EXTENDABLE_FOR = dt.timedelta(days=90)


@operation("CreateHITType", writes=True)
def create_hit_type(call: Call) -> dict[str, Any]:
    """The same values give the same HIT type."""
    return {"HITTypeId": _hit_type(call).mturk_id}


@operation("CreateHIT", writes=True)
def create_hit(call: Call) -> dict[str, Any]:
    """Post a HIT with the values of its type."""
    return _post(call, _hit_type)


@operation("CreateHITWithHITType", writes=True)
def create_hit_with_hit_type(call: Call) -> dict[str, Any]:
    """Post a HIT of an existing type."""
    return _post(call, _existing_type)


@operation("GetHIT", writes=False)
def get_hit(call: Call) -> dict[str, Any]:
    """A HIT with its question; a deleted one says Disposed."""
    hit = find(call)
    return {"HIT": shapes.hit(hit, call.now, hits.question(call.connection, hit.id))}


@operation("ListHITs", writes=False)
def list_hits(call: Call) -> dict[str, Any]:
    """All HITs of the environment that are not deleted, oldest first, without their questions."""
    after, size = call.params.page()
    rows = hits.list_hits(call.connection, call.environment, after=after, limit=size + 1, now=call.now)
    return paged(rows, size, "HITs", lambda row: shapes.hit(row, call.now))


@operation("ListReviewableHITs", writes=False)
def list_reviewable_hits(call: Call) -> dict[str, Any]:
    """HITs on which no further work will come."""
    after, size = call.params.page()
    status = call.params.choice("Status", ("Reviewable", "Reviewing"), "Reviewable")
    rows = hits.list_reviewable(
        call.connection,
        call.environment,
        hit_type_id=call.params.entity("HITTypeId") if call.params.has("HITTypeId") else None,
        reviewing=status == "Reviewing",
        after=after,
        limit=size + 1,
        now=call.now,
    )
    return paged(rows, size, "HITs", lambda row: shapes.hit(row, call.now))


@operation("UpdateExpirationForHIT", writes=True)
def update_expiration(call: Call) -> dict[str, Any]:
    """Move a HIT's expiry, to the past to end it now; money is set aside or set free accordingly."""
    hit = _undeleted(find(call))
    expires_at = call.params.time("ExpireAt")
    if expires_at > call.now + dt.timedelta(seconds=YEAR_S):
        raise out_of_range("ExpireAt", f"{expires_at:%Y-%m-%d}", "at most a year from now")
    hits.set_expiration(call.connection, hit.id, expires_at)
    settling.settle_hit(call.connection, call.environment, hit.id, call.now)
    return {}


@operation("UpdateHITReviewStatus", writes=True)
def update_review_status(call: Call) -> dict[str, Any]:
    """Set the requester's own marker, or lift it."""
    hit = find(call)
    revert = call.params.flag("Revert")
    wanted = "Reviewing" if revert else "Reviewable"
    if hit.status(call.now) != wanted:
        raise wrong_state(hit, call.now, wanted)
    hits.set_reviewing(call.connection, hit.id, not revert)
    return {}


@operation("CreateAdditionalAssignmentsForHIT", writes=True)
def create_additional_assignments(call: Call) -> dict[str, Any]:
    """Ask for more assignments of a HIT."""
    hit = _undeleted(find(call))
    count = call.params.integer("NumberOfAdditionalAssignments", 1, MAX_ASSIGNMENTS)
    token = call.params.token()
    if token:
        earlier = tokens.recall(call.connection, call.environment, "extend", token, call.now)
        if earlier is not None:
            raise already("AdditionalAssignmentsAlreadyAdded", "The assignments", "request", earlier)
    if hit.max_assignments < MANY <= hit.max_assignments + count:
        raise turk(
            "InvalidMaximumAssignmentsIncrease",
            f"A HIT created with fewer than {MANY} assignments cannot be raised to {MANY} or more.",
        )
    if hit.max_assignments + count > MAX_ASSIGNMENTS:
        raise out_of_range("NumberOfAdditionalAssignments", count, f"at most {MAX_ASSIGNMENTS} in all")
    if hit.created_at + EXTENDABLE_FOR < call.now:
        raise turk("HITTooOldForExtension", "HITs older than 90 days cannot be extended.")
    hits.add_slots(call.connection, hit.id, count)
    settling.settle_hit(call.connection, call.environment, hit.id, call.now)
    if token:
        tokens.remember(call.connection, call.environment, "extend", token, call.request_id, call.now)
    return {}


@operation("DeleteHIT", writes=True)
def delete_hit(call: Call) -> dict[str, Any]:
    """Dispose of a HIT that is reviewable with every submission decided; its rows stay."""
    hit = find(call)
    if hit.status(call.now) not in ("Reviewable", "Reviewing") or hit.undecided:
        raise wrong_state(hit, call.now, "Reviewing, Reviewable")
    hits.delete(call.connection, hit.id, call.now)
    settling.settle_hit(call.connection, call.environment, hit.id, call.now)
    return {}


def find(call: Call) -> HitRow:
    """The HIT that the request names."""
    mturk_id = call.params.entity("HITId")
    hit = hits.find_hit(call.connection, call.environment, mturk_id, call.now)
    if hit is None:
        raise absent("Hit", "HITDoesNotExist", mturk_id)
    return hit


def key(call: Call) -> int:
    """The row of the HIT that the request names."""
    mturk_id = call.params.entity("HITId")
    found = hits.hit_key(call.connection, call.environment, mturk_id)
    if found is None:
        raise absent("Hit", "HITDoesNotExist", mturk_id)
    return found


def wrong_state(hit: HitRow, now: dt.datetime, allowed: str) -> TurkError:
    """The error for a HIT in a state that does not allow the operation."""
    why = f" {hit.undecided} submitted assignments wait for a decision." if hit.undecided else ""
    return turk(
        "InvalidHITState",
        f"This HIT is currently in the state '{hit.status(now)}'. "
        f"This operation can be called with a status of: {allowed}.{why}",
    )


def already(code: str, noun: str, what: str, result: str) -> TurkError:
    """The error for a UniqueRequestToken that was used in the last 24 hours; it names what was made."""
    return turk(code, f"{noun} with this UniqueRequestToken already exist; {what} {result}.")


def _undeleted(hit: HitRow) -> HitRow:
    if hit.deleted_at is not None:
        raise turk(
            "InvalidHITState",
            "This HIT is currently in the state 'Disposed'. This operation can be called with a status of: "
            "Assignable, Unassignable, Reviewable, Reviewing.",
        )
    return hit


def _post(call: Call, type_of: Any) -> dict[str, Any]:
    params = call.params
    token = params.token()
    if token:
        earlier = tokens.recall(call.connection, call.environment, "hit", token, call.now)
        if earlier is not None:
            raise already("HitAlreadyExists", "HITs", "HIT", earlier)
    for name in ("HITLayoutId", "AssignmentReviewPolicy", "HITReviewPolicy"):
        if params.has(name):
            raise invalid(name, "this server offers neither layouts nor review policies; send a Question")
    question = params.text("Question", required=True)
    questions.check(question)
    lifetime_s = params.integer("LifetimeInSeconds", 30, YEAR_S)
    max_assignments = params.integer("MaxAssignments", 1, MAX_ASSIGNMENTS, 1)
    annotation = params.text("RequesterAnnotation", longest=255)
    hit = hits.add_hit(
        call.connection,
        call.environment,
        type_of(call),
        question=question,
        annotation=annotation,
        max_assignments=max_assignments,
        lifetime_s=lifetime_s,
        now=call.now,
    )
    if token:
        tokens.remember(call.connection, call.environment, "hit", token, hit.mturk_id, call.now)
    return {"HIT": shapes.hit(hit, call.now)}


def _existing_type(call: Call) -> TypeRow:
    mturk_id = call.params.entity("HITTypeId")
    found = hit_types.find(call.connection, call.environment, mturk_id)
    if found is None:
        raise absent("HITType", "HITTypeDoesNotExist", mturk_id)
    return found


def _hit_type(call: Call) -> TypeRow:
    params = call.params
    values = TypeValues(
        title=params.text("Title", longest=128, required=True),
        description=params.text("Description", longest=2000, required=True),
        keywords=params.text("Keywords", longest=1000),
        reward_cents=params.cents("Reward"),
        duration_s=params.integer("AssignmentDurationInSeconds", 30, YEAR_S),
        auto_approval_s=params.integer("AutoApprovalDelayInSeconds", 0, MONTH_S, MONTH_S),
        requirements=_requirements(call, params),
    )
    digest = hashlib.sha256(json.dumps(asdict(values), sort_keys=True).encode()).hexdigest()
    return hit_types.add(call.connection, call.environment, digest, values, call.now)


def _requirements(call: Call, params: Params) -> str:
    given = params.raw("QualificationRequirements")
    if given is None:
        return "[]"
    name = "QualificationRequirements"
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise invalid(name, "it must be a list of structures")
    if len(given) > 10:
        raise out_of_range(name, f"{len(given)} long", "at most 10 requirements")
    return json.dumps([_requirement(call, one) for one in given], sort_keys=True)


def _requirement(call: Call, given: Mapping[str, Any]) -> dict[str, Any]:
    own = Params(given)
    type_id = own.entity("QualificationTypeId")
    comparator = own.choice("Comparator", tuple(sorted(qualifying.COMPARATORS)))
    is_system = type_id in qualifying.SYSTEM_TYPES
    if not is_system and qualifications.find_type(call.connection, call.environment, type_id) is None:
        raise absent("QualificationType", "QualificationTypeDoesNotExist", type_id)
    kept: dict[str, Any] = {"QualificationTypeId": type_id, "Comparator": comparator}
    values = given.get("IntegerValues") or []
    needs_value = comparator not in ("Exists", "DoesNotExist")
    if not isinstance(values, list) or not all(type(value) is int for value in values) or len(values) > 15:
        raise invalid("IntegerValues", "it must be a list of at most 15 integers")
    if needs_value and not is_system and not values:
        raise missing("IntegerValues")
    if not needs_value and values:
        raise invalid("IntegerValues", f"the comparator {comparator} takes none")
    if values:
        kept["IntegerValues"] = values
    if is_system and given.get("LocaleValues"):
        kept["LocaleValues"] = _locales(given["LocaleValues"])
    if own.has("ActionsGuarded") and own.has("RequiredToPreview"):
        raise invalid("ActionsGuarded", "give either ActionsGuarded or RequiredToPreview")
    if own.has("ActionsGuarded"):
        kept["ActionsGuarded"] = own.choice(
            "ActionsGuarded", ("Accept", "PreviewAndAccept", "DiscoverPreviewAndAccept")
        )
    if own.has("RequiredToPreview"):
        kept["RequiredToPreview"] = own.flag("RequiredToPreview")
    return kept


def _locales(given: Any) -> list[dict[str, str]]:
    if not isinstance(given, list) or len(given) > 30:
        raise invalid("LocaleValues", "it must be a list of at most 30 locales")
    kept = []
    for one in given:
        own = Params(one if isinstance(one, dict) else {})
        locale = {"Country": own.text("Country", longest=2, required=True)}
        if own.has("Subdivision"):
            locale["Subdivision"] = own.text("Subdivision", longest=2)
        kept.append(locale)
    return kept
