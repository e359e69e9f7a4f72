"""The requester API as typed methods: money in cents, times aware UTC, repeats that cost nothing."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from mitl.crowd.amounts import dollars, is_code
from mitl.crowd.limiter import AdaptiveLimiter
from mitl.crowd.listings import (
    CreatedHit,
    ListedAssignment,
    ListedBonus,
    ListedHit,
    amount,
    assignment_status,
    listed_assignment,
    listed_hit,
    member,
    nothing,
)
from mitl.crowd.transport import Keys, Transport, is_amazon
from mitl.crowd.worker_calls import WorkerCalls
from mitl.errors import CrowdError

__all__ = ["CreatedHit", "Keys", "ListedAssignment", "ListedBonus", "ListedHit", "MTurkClient", "is_amazon"]

_ENTITY = re.compile(r"\b[A-Z0-9]{20,64}\b")


class MTurkClient(WorkerCalls):
    """The requester API at one endpoint, with one key pair; safe to share between threads.

    Every method raises EndpointError where nothing answers, FundsError where money is lacking, SettingsError
    where there are no credentials, and CrowdError, with the API's ``code``, for any other refusal.
    """

    def __init__(
        self,
        url: str,
        *,
        keys: Keys | None = None,
        max_connections: int = 16,
        limiter: AdaptiveLimiter | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Args: keys: None takes the AWS credential chain (environment, profile, role)."""
        self.url = url
        self._transport = Transport(url, keys, max_connections, limiter or AdaptiveLimiter(), sleep)

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def __enter__(self) -> MTurkClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create_hit_type(
        self,
        *,
        title: str,
        description: str,
        keywords: str,
        reward_cents: int,
        assignment_duration_s: int,
        auto_approval_s: int,
        exclude_qualification: str | None = None,
    ) -> str:
        """The id of the HIT type of these values; the same values give the same id.

        Args:
            exclude_qualification: whoever holds this qualification neither sees nor gets such HITs.
        """
        requirements = []
        if exclude_qualification is not None:
            requirements.append(
                {
                    "QualificationTypeId": exclude_qualification,
                    "Comparator": "DoesNotExist",
                    "ActionsGuarded": "DiscoverPreviewAndAccept",
                }
            )
        return self._transport.call(
            "create_hit_type",
            lambda reply: member(reply, "HITTypeId", str),
            Title=title,
            Description=description,
            Keywords=keywords,
            Reward=dollars(reward_cents),
            AssignmentDurationInSeconds=assignment_duration_s,
            AutoApprovalDelayInSeconds=auto_approval_s,
            QualificationRequirements=requirements,
        )

    def create_hit(
        self,
        *,
        hit_type_id: str,
        question: str,
        max_assignments: int,
        lifetime_s: int,
        annotation: str,
        token: str,
    ) -> CreatedHit:
        """Post a HIT once: within 24 hours the same token gives back the HIT that it made before."""
        try:
            hit_id = self._transport.call(
                "create_hit_with_hit_type",
                lambda reply: member(member(reply, "HIT", dict), "HITId", str),
                HITTypeId=hit_type_id,
                Question=question,
                MaxAssignments=max_assignments,
                LifetimeInSeconds=lifetime_s,
                RequesterAnnotation=annotation,
                UniqueRequestToken=token,
            )
        except CrowdError as error:
            if not is_code(error, "HitAlreadyExists"):
                raise
            return CreatedHit(self._existing(str(error), annotation, error), existed=True)
        return CreatedHit(hit_id, existed=False)

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
        seen: set[str] = set()
        for hit in self._pages("list_hits", "HITs", listed_hit):
            if hit.hit_id not in seen:
                seen.add(hit.hit_id)
                yield hit

    def list_assignments(self, hit_id: str) -> Iterator[ListedAssignment]:
        """The submitted assignments of a HIT with their answers, each once."""
        seen: set[tuple[str, str]] = set()
        for own in self._pages("list_assignments_for_hit", "Assignments", listed_assignment, HITId=hit_id):
            if (own.assignment_id, own.worker_id) not in seen:
                seen.add((own.assignment_id, own.worker_id))
                yield own

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
        try:
            self._transport.call("update_expiration_for_hit", nothing, HITId=hit_id, ExpireAt=when)
        except CrowdError as error:
            # MTurk refuses a time that it was given before, also where another one was set since.
            found = (
                self.get_hit(hit_id)
                if error.code is not None and "idempotency" in str(error).lower()
                else None
            )
            if found is None or abs(found.expires_at - when) > dt.timedelta(seconds=1):
                raise
            return False
        return True

    def extend(self, hit_id: str, additional: int, token: str) -> bool:
        """Ask for more assignments of a HIT once; False where an earlier request with this token did."""
        try:
            self._transport.call(
                "create_additional_assignments_for_hit",
                nothing,
                HITId=hit_id,
                NumberOfAdditionalAssignments=additional,
                UniqueRequestToken=token,
            )
        except CrowdError as error:
            if error.code is not None and "already" in error.code.lower():
                return False
            raise
        return True

    def delete(self, hit_id: str) -> bool:
        """Dispose of a HIT whose submissions are all decided; False where it was deleted already."""
        try:
            self._transport.call("delete_hit", nothing, HITId=hit_id)
        except CrowdError as error:
            if is_code(error, "InvalidHITState"):
                found = self.get_hit(hit_id)
                if found is None or found.status == "Disposed":
                    return False
            raise
        return True

    def balance(self) -> int:
        """Cents that may be spent."""
        return self._transport.call("get_account_balance", lambda reply: amount(reply, "AvailableBalance"))

    def _decide(self, wanted: str, operation: str, **parameters: Any) -> bool:
        try:
            self._transport.call(operation, nothing, **parameters)
        except CrowdError as error:
            if is_code(error, "InvalidAssignmentState"):
                status = self._transport.call(
                    "get_assignment",
                    lambda reply: assignment_status(member(reply, "Assignment", dict)),
                    AssignmentId=parameters["AssignmentId"],
                )
                if status == wanted:
                    return False
            raise
        return True

    def _existing(self, message: str, annotation: str, cause: CrowdError) -> str:
        """The HIT that an "already exists" message names, read back to be sure."""
        try:
            for hit_id in _ENTITY.findall(message):
                hit = self.get_hit(hit_id)
                if hit is not None and hit.annotation == annotation:
                    return hit.hit_id
            raise CrowdError(
                f"the server says that a HIT for {annotation!r} exists, but names none that it has; "
                "run `mitl publish` again"
            ) from cause
        except CrowdError as error:
            error.unclear = True  # whatever kept it from being read back, the HIT is there
            raise
