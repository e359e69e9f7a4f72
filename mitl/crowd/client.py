"""The requester API as typed methods: money in cents, times aware UTC, repeats that cost nothing."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from mitl.core.pricing import amount as dollars
from mitl.crowd.listings import (
    ListedAssignment,
    ListedBonus,
    ListedHit,
    amount,
    assignment_status,
    is_code,
    listed_assignment,
    listed_bonus,
    listed_hit,
    member,
    nothing,
    optional,
)
from mitl.errors import CrowdError

if TYPE_CHECKING:
    from mitl.crowd.transport import AdaptiveLimiter

__all__ = ["Keys", "ListedAssignment", "ListedBonus", "ListedHit", "MTurkClient"]

T = TypeVar("T")
PAGE = 100
_ROUNDS = 5
"""How often a listing may give the same page before it is said to go in circles."""
_ENTITY = re.compile(r"\b[A-Z0-9]{20,64}\b")


@dataclass(frozen=True, slots=True)
class Keys:
    """An access key and its secret; the secret never shows."""

    access_key: str
    secret_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HitTypeTerms:
    """What HITs of one type have in common."""

    title: str
    description: str
    keywords: str
    reward_cents: int
    assignment_duration_s: int
    auto_approval_s: int


@dataclass(frozen=True, slots=True)
class HitRequest:
    """A HIT to be posted."""

    hit_type_id: str
    question: str
    max_assignments: int
    lifetime_s: int
    annotation: str
    token: str
    """The same within 24 hours gives back the same HIT."""


class MTurkClient:
    """The requester API at one endpoint, with one key pair; safe to share between threads.

    Every method raises EndpointError where nothing answers, FundsError where money is lacking, SettingsError
    where there are no credentials, and CrowdError, with the API's ``code``, for any other refusal.
    """

    def __init__(
        self,
        url: str,
        *,
        keys: Keys | None = None,
        limiter: AdaptiveLimiter | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Args: keys: None takes the AWS credential chain (environment, profile, role)."""
        from mitl.crowd.transport import AdaptiveLimiter, Transport  # boto3's core takes a while to load

        self.url = url
        self._transport = Transport(url, keys, limiter or AdaptiveLimiter(), sleep)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def __enter__(self) -> MTurkClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_hit_type(self, terms: HitTypeTerms, *, without: Sequence[str] = ()) -> str:
        """The id of the HIT type of these values; the same values give the same id.

        Args:
            without: whoever holds one of these qualifications neither sees nor gets such HITs.
        """
        shut_out = {"Comparator": "DoesNotExist", "ActionsGuarded": "DiscoverPreviewAndAccept"}
        return self._transport.call(
            "create_hit_type",
            lambda reply: member(reply, "HITTypeId", str),
            Title=terms.title,
            Description=terms.description,
            Keywords=terms.keywords,
            Reward=dollars(terms.reward_cents),
            AssignmentDurationInSeconds=terms.assignment_duration_s,
            AutoApprovalDelayInSeconds=terms.auto_approval_s,
            QualificationRequirements=[{"QualificationTypeId": held, **shut_out} for held in without],
        )

    def create_hit(self, hit: HitRequest) -> str:
        """Post a HIT once, for its id; within 24 hours the same token gives that of the HIT that it made before."""
        try:
            return self._transport.call(
                "create_hit_with_hit_type",
                lambda reply: member(member(reply, "HIT", dict), "HITId", str),
                HITTypeId=hit.hit_type_id,
                Question=hit.question,
                MaxAssignments=hit.max_assignments,
                LifetimeInSeconds=hit.lifetime_s,
                RequesterAnnotation=hit.annotation,
                UniqueRequestToken=hit.token,
            )
        except CrowdError as error:
            if not is_code(error, "HitAlreadyExists"):
                raise
            return self._existing(str(error), hit.annotation, error)

    def get_hit(self, hit_id: str) -> ListedHit | None:
        """One HIT, deleted ones with status Disposed; None where there is none of this id."""
        try:
            return self._transport.call(
                "get_hit", lambda reply: listed_hit(member(reply, "HIT", dict)), HITId=hit_id
            )
        except CrowdError as error:
            if is_code(error, "HITDoesNotExist"):
                return None
            raise

    def list_hits(self) -> Iterator[ListedHit]:
        """All HITs of this key that are not deleted, those of other projects included, each once."""
        return _each_once(self._pages("list_hits", "HITs", listed_hit), lambda hit: hit.hit_id)

    def list_assignments(self, hit_id: str) -> Iterator[ListedAssignment]:
        """The submitted assignments of a HIT with their answers, each once."""
        rows = self._pages("list_assignments_for_hit", "Assignments", listed_assignment, HITId=hit_id)
        return _each_once(rows, lambda row: (row.assignment_id, row.worker_id))

    def approve(self, assignment_id: str, *, override_rejection: bool = False) -> bool:
        """Approve a submission; False where it was approved already (by an earlier try, or by itself)."""
        return self._decide(
            "Approved", "approve_assignment", AssignmentId=assignment_id, OverrideRejection=override_rejection
        )

    def reject(self, assignment_id: str, reason: str) -> bool:
        """Refuse a submission, with the reason that the worker sees; False where it was rejected already."""
        return self._decide(
            "Rejected", "reject_assignment", AssignmentId=assignment_id, RequesterFeedback=reason
        )

    def expire(self, hit_id: str) -> None:
        """End a HIT now: nobody new may take it, who has it may finish."""
        # A time of its own for each call: MTurk refuses the same one twice as a repeated request.
        past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        self._transport.call("update_expiration_for_hit", nothing, HITId=hit_id, ExpireAt=past)

    def set_expiry(self, hit_id: str, when: dt.datetime) -> bool:
        """Let a HIT be taken until this time; False where an earlier call set the same one."""

        def is_set(error: CrowdError) -> bool:
            # MTurk refuses a time that it was given before, also where another one was set since.
            if error.code is None or "idempotency" not in str(error).lower():
                return False
            hit = self.get_hit(hit_id)
            return hit is not None and abs(hit.expires_at - when) <= dt.timedelta(seconds=1)

        return self._once("update_expiration_for_hit", is_set, HITId=hit_id, ExpireAt=when)

    def extend(self, hit_id: str, additional: int, token: str) -> bool:
        """Ask for more assignments of a HIT once; False where an earlier request with this token did."""
        return self._once(
            "create_additional_assignments_for_hit",
            _is_repeat,
            HITId=hit_id,
            NumberOfAdditionalAssignments=additional,
            UniqueRequestToken=token,
        )

    def delete(self, hit_id: str) -> bool:
        """Dispose of a HIT whose submissions are all decided; False where it was deleted already."""

        def is_deleted(error: CrowdError) -> bool:
            if not is_code(error, "InvalidHITState"):
                return False
            hit = self.get_hit(hit_id)
            return hit is None or hit.status == "Disposed"

        return self._once("delete_hit", is_deleted, HITId=hit_id)

    def balance(self) -> int:
        """Cents that may be spent."""
        return self._transport.call("get_account_balance", lambda reply: amount(reply, "AvailableBalance"))

    def bonus(self, assignment_id: str, worker_id: str, cents: int, reason: str, *, token: str) -> bool:
        """Grant a bonus once; False where an earlier request with this token granted it."""
        return self._once(
            "send_bonus",
            _is_repeat,
            AssignmentId=assignment_id,
            WorkerId=worker_id,
            BonusAmount=dollars(cents),
            Reason=reason,
            UniqueRequestToken=token,
        )

    def list_bonuses(
        self, *, assignment_id: str | None = None, hit_id: str | None = None
    ) -> Iterator[ListedBonus]:
        """The bonuses granted for an assignment or for a HIT; just one of the two is named."""
        assert (assignment_id is None) != (hit_id is None)
        of = {"HITId": hit_id} if assignment_id is None else {"AssignmentId": assignment_id}
        # A bonus has no id of its own: two that look alike may well be two.
        yield from self._pages("list_bonus_payments", "BonusPayments", listed_bonus, **of)

    def find_qualification_type(self, name: str) -> str | None:
        """The id of the caller's qualification type of exactly this name."""
        types = self._pages(
            "list_qualification_types",
            "QualificationTypes",
            lambda shape: (member(shape, "Name", str), member(shape, "QualificationTypeId", str)),
            Query=name,
            MustBeRequestable=False,
            MustBeOwnedByCaller=True,
        )
        return next((type_id for type_name, type_id in types if type_name == name), None)

    def create_qualification_type(self, name: str, description: str) -> str:
        """The id of a new qualification type, or of the one of this name that exists."""
        try:
            return self._transport.call(
                "create_qualification_type",
                lambda reply: member(member(reply, "QualificationType", dict), "QualificationTypeId", str),
                Name=name,
                Description=description,
                QualificationTypeStatus="Active",
            )
        except CrowdError as error:
            if is_code(error, "QualificationTypeAlreadyExists"):
                existing = self.find_qualification_type(name)
                if existing is not None:
                    return existing
            raise

    def associate_qualification(self, qualification_type_id: str, worker_id: str) -> None:
        """Give a worker a qualification, without a mail about it."""
        self._transport.call(
            "associate_qualification_with_worker",
            nothing,
            QualificationTypeId=qualification_type_id,
            WorkerId=worker_id,
            IntegerValue=1,
            SendNotification=False,
        )

    def revoke_qualification(self, qualification_type_id: str, worker_id: str) -> bool:
        """Take a qualification from a worker, without a mail about it; False where they do not hold it."""
        return self._once(
            "disassociate_qualification_from_worker",
            lambda error: is_code(error, "InvalidQualificationState", "QualificationDoesNotExist"),
            QualificationTypeId=qualification_type_id,
            WorkerId=worker_id,
        )

    def notify(self, worker_id: str, subject: str, text: str) -> str | None:
        """Send a worker a message; why it could not be delivered, or None where it was.

        A message takes no token, so a call whose reply is lost is not made again: its error is ``unclear``.
        """
        return self._transport.call(
            "notify_workers",
            _failed_message,
            repeatable=False,
            WorkerIds=[worker_id],
            Subject=subject,
            MessageText=text,
        )

    def _decide(self, wanted: str, operation: str, **parameters: Any) -> bool:
        def is_decided(error: CrowdError) -> bool:
            if not is_code(error, "InvalidAssignmentState"):
                return False
            status = self._transport.call(
                "get_assignment",
                lambda reply: assignment_status(member(reply, "Assignment", dict)),
                AssignmentId=parameters["AssignmentId"],
            )
            return status == wanted

        return self._once(operation, is_decided, **parameters)

    def _once(self, operation: str, is_made: Callable[[CrowdError], bool], **parameters: Any) -> bool:
        """Make a call that changes something; False where its refusal says that an earlier one made the change."""
        try:
            self._transport.call(operation, nothing, **parameters)
        except CrowdError as error:
            if is_made(error):
                return False
            raise
        return True

    def _pages(
        self, operation: str, rows: str, read_row: Callable[[Mapping[str, Any]], T], **parameters: Any
    ) -> Iterator[T]:
        def read(reply: Mapping[str, Any]) -> tuple[list[T], str | None]:
            return list(map(read_row, member(reply, rows, list))), optional(reply, "NextToken")

        token: str | None = None
        before: list[T] = []
        met: Counter[str] = Counter()
        while True:
            following: dict[str, Any] = {} if token is None else {"NextToken": token}
            page, token = self._transport.call(operation, read, MaxResults=PAGE, **parameters, **following)
            if page != before:  # a page that comes a second time says nothing new
                yield from page
            before = page
            if not token or not before:
                return
            met[token] += 1
            if met[token] > _ROUNDS:
                raise CrowdError(f"{operation} gives the same page again and again; run the command later")

    def _existing(self, message: str, annotation: str, cause: CrowdError) -> str:
        """The HIT that an "already exists" message names, read back to be sure."""
        try:
            for hit_id in _ENTITY.findall(message):
                hit = self.get_hit(hit_id)
                if hit is not None and hit.annotation == annotation:
                    return hit.hit_id
            raise CrowdError(
                f"the server says that a HIT for {annotation!r} exists, but names none that it has; "
                "run the command again"
            ) from cause
        except CrowdError as error:
            error.unclear = True  # whatever kept it from being read back, the HIT is there
            raise


def _each_once(rows: Iterator[T], key: Callable[[T], object]) -> Iterator[T]:
    """Of rows of one key the first: what changes between two pages may come on both."""
    seen: set[object] = set()
    for row in rows:
        if key(row) not in seen:
            seen.add(key(row))
            yield row


def _is_repeat(error: CrowdError) -> bool:
    """Whether a request was refused since one with the same token had succeeded."""
    return error.code is not None and "already" in error.code.lower()


def _failed_message(reply: Mapping[str, Any]) -> str | None:
    """Why a message could not be delivered; None where it was."""
    for failure in reply.get("NotifyWorkersFailureStatuses") or ():
        return optional(failure, "NotifyWorkersFailureMessage") or member(
            failure, "NotifyWorkersFailureCode", str
        )
    return None


def exclusion_qualification(client: MTurkClient, project_id: str) -> str:
    """The id of the qualification type that keeps workers from further HITs, made where it is missing.

    It harms nobody's account. HIT types require that a worker does *not* hold it. Workers learn nothing from its name.
    """
    name = f"mitl {project_id} finished"
    type_id = client.find_qualification_type(name)
    if type_id is not None:
        return type_id
    return client.create_qualification_type(
        name,
        "Held by people who have finished their part of this study; no further tasks are offered to them.",
    )
