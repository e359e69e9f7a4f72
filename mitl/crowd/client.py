"""The only module that knows boto3: the requester API as typed methods, money in cents, times aware UTC.

botocore's own retries are off. Its default mode gave up on one HIT in seven at a limit of ten calls a second,
its adaptive mode lost none but stayed at half of what a faster service allowed, and both keep retrying for
minutes where nothing listens at all. Here a throttled call waits under one limiter shared by all threads, a
failed call is repeated only where that cannot cost twice, and a dead host is reported after a second look.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ReadTimeoutError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from mitl.crowd.limiter import AdaptiveLimiter
from mitl.errors import CrowdError, EndpointError, FundsError, SettingsError

REGION = "us-east-1"
"""MTurk lived in this region only; the server checks it too."""
CLOSED = "Amazon closed Mechanical Turk on 30 September 2026"
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
PAGE = 100
THROTTLED_TRIES = 20
FAULT_TRIES = 4
_THROTTLES = {"throttlingexception", "throttling", "toomanyrequestsexception", "requestlimitexceeded"}
_ENTITY = re.compile(r"\b[A-Z0-9]{20,64}\b")


@dataclass(frozen=True, slots=True)
class Keys:
    """An access key and its secret; the secret never shows."""

    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        """Name the access key alone."""
        return f"Keys({self.access_key!r})"


@dataclass(frozen=True, slots=True)
class CreatedHit:
    """A HIT on the server, and whether an earlier request with the same token had made it."""

    hit_id: str
    existed: bool


@dataclass(frozen=True, slots=True)
class ListedHit:
    """A HIT as listed, numbers of assignments at that moment."""

    hit_id: str
    status: str
    annotation: str | None
    expires_at: dt.datetime
    max_assignments: int
    n_pending: int
    """Accepted and not yet submitted."""
    n_available: int
    n_completed: int
    """Approved or rejected."""

    @property
    def n_submitted(self) -> int:
        """Submitted, decided or not."""
        return self.max_assignments - self.n_pending - self.n_available

    @property
    def n_undecided(self) -> int:
        """Submitted and waiting for a decision."""
        return self.n_submitted - self.n_completed


@dataclass(frozen=True, slots=True)
class ListedAssignment:
    """A submitted assignment with its raw answer."""

    assignment_id: str
    worker_id: str
    hit_id: str
    status: str
    """Submitted, Approved or Rejected."""
    accepted_at: dt.datetime
    submitted_at: dt.datetime
    answer_xml: str


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
        self._keys = keys
        self._limiter = limiter or AdaptiveLimiter()
        self._sleep = sleep
        self._client = _boto_client(url, keys, max_connections)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

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
        reply = self._call(
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
            reply = self._call(
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
            return _listed_hit(self._call("get_hit", HITId=hit_id)["HIT"])
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
                yield _listed_hit(shape)

    def list_assignments(self, hit_id: str) -> Iterator[ListedAssignment]:
        """The submitted assignments of a HIT with their answers."""
        for shape in self._pages("list_assignments_for_hit", "Assignments", HITId=hit_id):
            yield ListedAssignment(
                assignment_id=shape["AssignmentId"],
                worker_id=shape["WorkerId"],
                hit_id=shape["HITId"],
                status=shape["AssignmentStatus"],
                accepted_at=_utc(shape["AcceptTime"]),
                submitted_at=_utc(shape["SubmitTime"]),
                answer_xml=shape.get("Answer", ""),
            )

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
            self._call(
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
        self._call("update_expiration_for_hit", HITId=hit_id, ExpireAt=past)

    def delete(self, hit_id: str) -> bool:
        """Dispose of a HIT whose submissions are all decided; False where it was deleted already."""
        try:
            self._call("delete_hit", HITId=hit_id)
        except CrowdError as error:
            if _is(error, "InvalidHITState"):
                found = self.get_hit(hit_id)
                if found is None or found.status == "Disposed":
                    return False
            raise
        return True

    def balance(self) -> int:
        """Cents that may be spent."""
        return _cents(self._call("get_account_balance")["AvailableBalance"])

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
            reply = self._call(
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
        self._call(
            "associate_qualification_with_worker",
            QualificationTypeId=qualification_type_id,
            WorkerId=worker_id,
            IntegerValue=value,
            SendNotification=False,
        )

    def _decide(self, wanted: str, operation: str, **parameters: Any) -> bool:
        try:
            self._call(operation, **parameters)
        except CrowdError as error:
            if _is(error, "InvalidAssignmentState"):
                shape = self._call("get_assignment", AssignmentId=parameters["AssignmentId"])["Assignment"]
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
            "run `mitl publish --reconcile`"
        ) from cause

    def _pages(self, operation: str, member: str, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        token: str | None = None
        while True:
            following = {} if token is None else {"NextToken": token}
            reply = self._call(operation, MaxResults=PAGE, **parameters, **following)
            yield from reply[member]
            token = reply.get("NextToken")
            if not token or not reply[member]:
                return

    def _call(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        call = getattr(self._client, operation)
        throttled = failed = 0
        while True:
            self._limiter.wait()
            try:
                reply: Mapping[str, Any] = call(**parameters)
                return reply
            except ClientError as error:
                if _is_throttle(error):
                    self._limiter.complain()
                    throttled += 1
                    if throttled >= THROTTLED_TRIES:
                        raise self._translate(error, operation) from error
                    continue
                failed += 1
                if not _is_fault(error) or failed >= FAULT_TRIES:
                    raise self._translate(error, operation) from error
            except (BotoConnectionError, HTTPClientError) as error:
                failed += 1
                tries = FAULT_TRIES if isinstance(error, ReadTimeoutError) else 2
                if failed >= tries:
                    raise self._unreachable(error) from error
            except (BotoCoreError, ProfileNotFound) as error:
                raise self._local(error, operation) from error
            # Every call that binds carries a token or is idempotent, so that a repeat costs nothing.
            self._sleep(0.2 * 2**failed)

    def _translate(self, error: ClientError, operation: str) -> CrowdError:
        code = str(error.response.get("TurkErrorCode") or error.response["Error"].get("Code", "unknown"))
        message = re.sub(r"\s*\(\d{13}[^)]*\)$", "", str(error.response["Error"].get("Message", ""))).rstrip(
            "."
        )
        kind: type[CrowdError] = CrowdError
        if code.lower().endswith("insufficientfunds"):
            kind = FundsError
        raised = kind(f"{operation} was refused at {self.url}: {message or 'no reason given'} [{code}]")
        raised.code = code
        return raised

    def _unreachable(self, error: Exception) -> EndpointError:
        if is_amazon(self.url):
            return EndpointError(
                f"cannot reach {self.url}: {CLOSED}; post to mitl's own crowd server instead "
                "(leave out --endpoint-url), and run `mitl serve` when people work"
            )
        return EndpointError(
            f"nothing answers at {self.url} ({type(error).__name__}); start the server there with `mitl serve`, "
            "or check --endpoint-url"
        )

    def _local(self, error: Exception, operation: str) -> CrowdError | SettingsError:
        if isinstance(error, ParamValidationError):
            return CrowdError(f"{operation} cannot be sent: {' '.join(str(error).split())}")
        if isinstance(error, NoCredentialsError | PartialCredentialsError | ProfileNotFound):
            return SettingsError(
                f"{self.url} needs AWS credentials, and none were found; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or leave out --endpoint-url to use mitl's own crowd server"
            )
        return CrowdError(f"{operation} failed at {self.url}: {' '.join(str(error).split())}")


def is_amazon(url: str) -> bool:
    """Whether this address is one of Amazon's."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    return host == "amazonaws.com" or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _boto_client(url: str, keys: Keys | None, max_connections: int) -> Any:
    options: dict[str, Any] = {
        "region_name": REGION,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retries": {"total_max_attempts": 1},
        "max_pool_connections": max_connections,
    }
    credentials: dict[str, str] = {}
    session_vars = None
    if keys is not None:
        # The user's own profile and files have no say here, and a broken one must not stop us.
        session_vars = {
            "profile": (None, None, None, None),
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
        }
        credentials = {"aws_access_key_id": keys.access_key, "aws_secret_access_key": keys.secret_key}
    if urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1"):
        options["proxies"] = {}
    try:
        session = botocore.session.Session(session_vars=session_vars)
        return session.create_client("mturk", endpoint_url=url, config=Config(**options), **credentials)
    except ProfileNotFound as error:
        raise SettingsError(
            f"{error}; choose an existing profile in AWS_PROFILE, or leave out --endpoint-url"
        ) from error
    except (BotoCoreError, ValueError) as error:
        raise EndpointError(
            f"{url!r} is no endpoint: {' '.join(str(error).split())}; write http://host:port or https://host"
        ) from error


def _listed_hit(shape: Mapping[str, Any]) -> ListedHit:
    return ListedHit(
        hit_id=shape["HITId"],
        status=shape["HITStatus"],
        annotation=shape.get("RequesterAnnotation"),
        expires_at=_utc(shape["Expiration"]),
        max_assignments=shape["MaxAssignments"],
        n_pending=shape["NumberOfAssignmentsPending"],
        n_available=shape["NumberOfAssignmentsAvailable"],
        n_completed=shape["NumberOfAssignmentsCompleted"],
    )


def _is(error: CrowdError, name: str) -> bool:
    """Whether this is MTurk's error of this name; old clients saw other capitals."""
    return error.code is not None and error.code.lower().rpartition(".")[2] == name.lower()


def _is_throttle(error: ClientError) -> bool:
    code = str(error.response["Error"].get("Code", "")).lower()
    return code in _THROTTLES or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 429


def _is_fault(error: ClientError) -> bool:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500


def _utc(time: dt.datetime) -> dt.datetime:
    return time.astimezone(dt.UTC)


def _dollars(cents: int) -> str:
    """The API's CurrencyAmount; made nowhere else."""
    assert cents >= 0
    return f"{cents // 100}.{cents % 100:02d}"


def _cents(amount: str) -> int:
    whole, _, part = amount.partition(".")
    return int(whole) * 100 + int((part + "00")[:2])
