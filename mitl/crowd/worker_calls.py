"""The part of the requester API that speaks of workers: bonuses, qualifications, messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from mitl.crowd.amounts import dollars, is_code
from mitl.crowd.listings import ListedBonus, listed_bonus, member, nothing, optional
from mitl.crowd.transport import Transport
from mitl.errors import CrowdError

T = TypeVar("T")
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
                nothing,
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
        yield from self._pages("list_bonus_payments", "BonusPayments", listed_bonus, **wanted)

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
        return next((type_id for known, type_id in types if known == name), None)

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
                found = self.find_qualification_type(name)
                if found is not None:
                    return found
            raise

    def associate_qualification(self, qualification_type_id: str, worker_id: str, value: int = 1) -> None:
        """Give a worker a qualification, without a mail about it."""
        self._transport.call(
            "associate_qualification_with_worker",
            nothing,
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
                nothing,
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
        return self._transport.call(
            "notify_workers",
            _failed_message,
            repeatable=False,
            WorkerIds=[worker_id],
            Subject=subject,
            MessageText=text,
        )

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


def _failed_message(reply: Mapping[str, Any]) -> str | None:
    """Why a message could not be delivered; None where it was."""
    for failure in reply.get("NotifyWorkersFailureStatuses") or ():
        return optional(failure, "NotifyWorkersFailureMessage") or member(
            failure, "NotifyWorkersFailureCode", str
        )
    return None


def exclusion_qualification(client: WorkerCalls, project_id: str) -> str:
    """The id of the qualification type that keeps workers from further HITs, made where it is missing.

    It harms nobody's account. HIT types require that a worker does *not* hold it. Workers learn nothing from its name.
    """
    name = f"mitl {project_id} finished"
    known = client.find_qualification_type(name)
    if known is not None:
        return known
    return client.create_qualification_type(
        name,
        "Held by people who have finished their part of this study; no further tasks are offered to them.",
    )
