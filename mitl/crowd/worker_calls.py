"""The part of the requester API that speaks of workers: bonuses, qualifications, messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mitl.crowd.amounts import dollars, is_code
from mitl.crowd.listings import ListedBonus, listed_bonus
from mitl.crowd.transport import Transport
from mitl.errors import CrowdError

PAGE = 100
_ROUNDS = 5
"""How often a listing may give the same page before it is said to go in circles."""


class WorkerCalls:
    """Calls about workers over one transport."""

    _transport: Transport

    def bonus(self, assignment_id: str, worker_id: str, cents: int, reason: str, *, token: str) -> bool:
        """Grant a bonus once; False where an earlier request with this token granted it."""
        try:
            self._transport.call(
                "send_bonus",
                AssignmentId=assignment_id,
                WorkerId=worker_id,
                BonusAmount=dollars(cents),
                Reason=reason,
                UniqueRequestToken=token,
            )
        except CrowdError as error:
            if error.code is not None and "already" in error.code.lower():
                return False
            raise
        return True

    def list_bonuses(
        self, *, assignment_id: str | None = None, hit_id: str | None = None
    ) -> Iterator[ListedBonus]:
        """The bonuses granted for an assignment or for a HIT; just one of the two is named."""
        assert (assignment_id is None) != (hit_id is None)
        wanted: dict[str, Any] = (
            {"HITId": hit_id} if assignment_id is None else {"AssignmentId": assignment_id}
        )
        # A bonus has no id of its own: two that look alike may well be two.
        for shape in self._pages("list_bonus_payments", "BonusPayments", **wanted):
            yield listed_bonus(shape)

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
            if is_code(error, "QualificationTypeAlreadyExists"):
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

    def revoke_qualification(self, qualification_type_id: str, worker_id: str) -> bool:
        """Take a qualification from a worker, without a mail about it; False where they do not hold it."""
        try:
            self._transport.call(
                "disassociate_qualification_from_worker",
                QualificationTypeId=qualification_type_id,
                WorkerId=worker_id,
            )
        except CrowdError as error:
            if is_code(error, "InvalidQualificationState", "QualificationDoesNotExist"):
                return False
            raise
        return True

    def notify(self, worker_id: str, subject: str, text: str) -> str | None:
        """Send a worker a message; why it could not be delivered, or None where it was.

        A message takes no token, so a call whose reply is lost is not made again: its error is ``unclear``.
        """
        reply = self._transport.call(
            "notify_workers", repeatable=False, WorkerIds=[worker_id], Subject=subject, MessageText=text
        )
        for failure in reply.get("NotifyWorkersFailureStatuses", ()):
            return str(failure.get("NotifyWorkersFailureMessage") or failure.get("NotifyWorkersFailureCode"))
        return None

    def _pages(self, operation: str, member: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        token: str | None = None
        before: list[Any] = []
        met: Counter[str] = Counter()
        while True:
            following: dict[str, Any] = {} if token is None else {"NextToken": token}
            reply = self._transport.call(operation, MaxResults=PAGE, **parameters, **following)
            if reply[member] != before:  # a page that comes a second time says nothing new
                yield from reply[member]
            before = reply[member]
            token = reply.get("NextToken")
            if not token or not before:
                return
            met[token] += 1
            if met[token] > _ROUNDS:
                raise CrowdError(f"{operation} gives the same page again and again; run the command later")
