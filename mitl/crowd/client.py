"""The requester API as typed methods: money in cents, times aware UTC, repeats that cost nothing."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from mitl.crowd.limiter import AdaptiveLimiter
from mitl.crowd.listings import CreatedHit, ListedAssignment, ListedHit, listed_assignment, listed_hit
from mitl.crowd.transport import Keys, Transport, is_amazon
from mitl.errors import CrowdError

__all__ = ["CreatedHit", "Keys", "ListedAssignment", "ListedHit", "MTurkClient", "is_amazon"]

PAGE = 100
_ENTITY = re.compile(r"\b[A-Z0-9]{20,64}\b")


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
        reply = self._transport.call(
            "create_hit_type",
            Title=title,
            Description=description,
            Keywords=keywords,
            Reward=_dollars(reward_cents),
            AssignmentDurationInSeconds=assignment_duration_s,
            AutoApprovalDelayInSeconds=auto_approval_s,
            QualificationRequirements=requirements,
        )
        return str(reply["HITTypeId"])

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
            reply = self._transport.call(
                "create_hit_with_hit_type",
                HITTypeId=hit_type_id,
                Question=question,
                MaxAssignments=max_assignments,
                LifetimeInSeconds=lifetime_s,
                RequesterAnnotation=annotation,
                UniqueRequestToken=token,
            )
        except CrowdError as error:
            if not _is(error, "HitAlreadyExists"):
                raise
            return CreatedHit(self._existing(str(error), annotation, error), existed=True)
        return CreatedHit(str(reply["HIT"]["HITId"]), existed=False)

    def get_hit(self, hit_id: str) -> ListedHit | None:
        """One HIT, deleted ones with status Disposed; None where there is none of this id."""
        try:
            return listed_hit(self._transport.call("get_hit", HITId=hit_id)["HIT"])
        except CrowdError as error:
            if _is(error, "HITDoesNotExist"):
                return None
            raise

    def list_hits(self) -> Iterator[ListedHit]:
        """All HITs of this key that are not deleted, those of other projects included, each once."""
        seen: set[str] = set()
        for shape in self._pages("list_hits", "HITs"):
            if shape["HITId"] not in seen:
                seen.add(shape["HITId"])
                yield listed_hit(shape)

    def list_assignments(self, hit_id: str) -> Iterator[ListedAssignment]:
        """The submitted assignments of a HIT with their answers."""
        for shape in self._pages("list_assignments_for_hit", "Assignments", HITId=hit_id):
            yield listed_assignment(shape)

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

    def bonus(self, assignment_id: str, worker_id: str, cents: int, reason: str, *, token: str) -> bool:
        """Grant a bonus once; False where an earlier request with this token granted it."""
        try:
            self._transport.call(
                "send_bonus",
                AssignmentId=assignment_id,
                WorkerId=worker_id,
                BonusAmount=_dollars(cents),
                Reason=reason,
                UniqueRequestToken=token,
            )
        except CrowdError as error:
            if error.code is not None and "already" in error.code.lower():
                return False
            raise
        return True

    def expire(self, hit_id: str) -> None:
        """End a HIT now: nobody new may take it, who has it may finish."""
        # A time of its own for each call: MTurk refuses the same one twice as a repeated request.
        past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        self._transport.call("update_expiration_for_hit", HITId=hit_id, ExpireAt=past)

    def delete(self, hit_id: str) -> bool:
        """Dispose of a HIT whose submissions are all decided; False where it was deleted already."""
        try:
            self._transport.call("delete_hit", HITId=hit_id)
        except CrowdError as error:
            if _is(error, "InvalidHITState"):
                found = self.get_hit(hit_id)
                if found is None or found.status == "Disposed":
                    return False
            raise
        return True

    def balance(self) -> int:
        """Cents that may be spent."""
        return _cents(self._transport.call("get_account_balance")["AvailableBalance"])

    def find_qualification_type(self, name: str) -> str | None:
        """The id of the caller's qualification type of exactly this name."""
        found = self._pages(
            "list_qualification_types",
            "QualificationTypes",
            Query=name,
            MustBeRequestable=False,
            MustBeOwnedByCaller=True,
        )
        return next((shape["QualificationTypeId"] for shape in found if shape["Name"] == name), None)

    def create_qualification_type(self, name: str, description: str) -> str:
        """The id of a new qualification type, or of the one of this name that exists."""
        try:
            reply = self._transport.call(
                "create_qualification_type",
                Name=name,
                Description=description,
                QualificationTypeStatus="Active",
            )
        except CrowdError as error:
            if _is(error, "QualificationTypeAlreadyExists"):
                found = self.find_qualification_type(name)
                if found is not None:
                    return found
            raise
        return str(reply["QualificationType"]["QualificationTypeId"])

    def associate_qualification(self, qualification_type_id: str, worker_id: str, value: int = 1) -> None:
        """Give a worker a qualification, without a mail about it."""
        self._transport.call(
            "associate_qualification_with_worker",
            QualificationTypeId=qualification_type_id,
            WorkerId=worker_id,
            IntegerValue=value,
            SendNotification=False,
        )

    def notify(self, worker_id: str, subject: str, text: str) -> str | None:
        """Send a worker a message; why it could not be delivered, or None where it was."""
        reply = self._transport.call(
            "notify_workers", WorkerIds=[worker_id], Subject=subject, MessageText=text
        )
        for failure in reply.get("NotifyWorkersFailureStatuses", ()):
            return str(failure.get("NotifyWorkersFailureMessage") or failure.get("NotifyWorkersFailureCode"))
        return None

    def _decide(self, wanted: str, operation: str, **parameters: Any) -> bool:
        try:
            self._transport.call(operation, **parameters)
        except CrowdError as error:
            if _is(error, "InvalidAssignmentState"):
                shape = self._transport.call("get_assignment", AssignmentId=parameters["AssignmentId"])[
                    "Assignment"
                ]
                if shape["AssignmentStatus"] == wanted:
                    return False
            raise
        return True

    def _existing(self, message: str, annotation: str, cause: CrowdError) -> str:
        """The HIT that an "already exists" message names, read back to be sure."""
        for hit_id in _ENTITY.findall(message):
            found = self.get_hit(hit_id)
            if found is not None and found.annotation == annotation:
                return found.hit_id
        raise CrowdError(
            f"the server says that a HIT for {annotation!r} exists, but names none that it has; "
            "run `mitl publish` again"
        ) from cause

    def _pages(self, operation: str, member: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        token: str | None = None
        while True:
            following = {} if token is None else {"NextToken": token}
            reply = self._transport.call(operation, MaxResults=PAGE, **parameters, **following)
            yield from reply[member]
            token = reply.get("NextToken")
            if not token or not reply[member]:
                return


def _is(error: CrowdError, name: str) -> bool:
    """Whether this is MTurk's error of this name; old clients saw other capitals."""
    return error.code is not None and error.code.lower().rpartition(".")[2] == name.lower()


def _dollars(cents: int) -> str:
    """The API's CurrencyAmount; made nowhere else."""
    assert cents >= 0
    return f"{cents // 100}.{cents % 100:02d}"


def _cents(amount: str) -> int:
    whole, _, part = amount.partition(".")
    return int(whole) * 100 + int((part + "00")[:2])
