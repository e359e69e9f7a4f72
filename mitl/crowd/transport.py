"""Calls over the wire: the only module that knows boto3. Signing, repeating, and errors in mitl's own terms.

botocore's own retries are off. Its default mode gave up on one HIT in seven at a limit of ten calls a second,
its adaptive mode lost none but stayed at half of what a faster service allowed, and both keep retrying for
minutes where nothing listens at all. Here a throttled call waits under one limiter shared by all threads, a
failed call is repeated only where that cannot cost twice, and a dead host is reported after a second look.
A reply that lacks what its reader needs counts as lost: the call may have had its effect.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    ReadTimeoutError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.exceptions import SSLError as BotoSSLError
from botocore.parsers import JSONParser, ResponseParserError, ResponseParserFactory
from botocore.utils import parse_timestamp

from mitl.addresses import is_amazon, is_loopback
from mitl.crowd import certificates
from mitl.crowd.listings import ReplyError
from mitl.errors import CrowdError, EndpointError, FundsError, SettingsError

if TYPE_CHECKING:
    from mitl.crowd.client import Keys

REGION = "us-east-1"
"""MTurk lived in this region only; the server checks it too."""
CLOSED = "Amazon closed Mechanical Turk on 30 September 2026"
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 60
MAX_CONNECTIONS = 16
THROTTLED_TRIES = 20
FAULT_TRIES = 4
_KEY_ERRORS = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
T = TypeVar("T")
_SKEWED = re.compile(
    r"Signature (?:expired|not yet current): (?P<here>\d{8}T\d{6}Z) .*\((?P<there>\d{8}T\d{6}Z) [-+] 15 min",
    re.DOTALL,
)
"""How AWS, and mitl's own server, refuse what was signed more than a quarter of an hour ago or ahead."""
_THROTTLES = {"throttlingexception", "throttling", "toomanyrequestsexception", "requestlimitexceeded"}
GROWTH_PER_S = 1.0
"""Calls per second that the allowed rate gains in each second without a complaint."""
CUT = 0.7
SLOWEST = 0.5


class AdaptiveLimiter:
    """Spaces the calls of all threads of a client.

    The service's limit is unknown and may change, so the rate is found by trying: a complaint cuts it to 0.7 of
    what was going through, quiet raises it slowly. Without a complaint nothing is delayed.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._sent: deque[float] = deque(maxlen=1000)
        self._rate: float | None = None
        self._changed_at = 0.0
        self._next_at = 0.0

    def wait(self) -> None:
        """Return when the next call may go."""
        with self._lock:
            now = self._clock()
            due = now
            if self._rate is not None:
                self._rate += GROWTH_PER_S * max(0.0, now - self._changed_at)
                self._changed_at = max(now, self._changed_at)
                due = max(now, self._next_at)
                self._next_at = due + 1 / self._rate
            self._sent.append(due)
        if due > now:
            self._sleep(due - now)

    def complain(self) -> None:
        """The service refused a call as one too many."""
        with self._lock:
            now = self._clock()
            recent = sum(1 for at in self._sent if now - 1 < at <= now)
            if self._rate is not None and now < self._changed_at:
                return  # one burst of refusals is one complaint
            through = recent if self._rate is None else min(self._rate, max(recent, 1))
            self._rate = max(SLOWEST, through * CUT)
            self._changed_at = now + 1.0
            self._next_at = now + 1 / self._rate

    @property
    def rate(self) -> float | None:
        """Calls per second allowed now; None while nothing is held back."""
        return self._rate


class Transport:
    """Makes calls of one service at one address; safe to share between threads.

    Raises EndpointError where nothing answers or the server's certificate cannot be verified, FundsError where money
    is lacking, SettingsError where there are no credentials, and CrowdError, with the API's ``code``, for any other
    refusal.
    """

    def __init__(
        self,
        url: str,
        keys: Keys | None,
        limiter: AdaptiveLimiter,
        sleep: Callable[[float], None],
    ) -> None:
        self.url = url
        self._limiter = limiter
        self._sleep = sleep
        self._client = _boto_client(url, keys)
        self._closed = False

    def close(self) -> None:
        """Close all connections; a call that is still made in another thread is not repeated."""
        self._closed = True
        self._client.close()

    def call(
        self,
        operation: str,
        read: Callable[[Mapping[str, Any]], T],
        *,
        repeatable: bool = True,
        **parameters: Any,
    ) -> T:
        """What a reader makes of the reply to one operation, by boto3's name for it.

        Args:
            read: raises ReplyError if the reply is not as the API describes it.
            repeatable: whether a repeat costs nothing, because the call carries a token or is idempotent. One that
                is not is never made again once it may have had its effect.
        """
        call = getattr(self._client, operation)
        throttled = failed = 0
        unclear = False
        while True:
            self._limiter.wait()
            try:
                return read(call(**parameters))
            except ClientError as error:
                if _is_throttle(error):
                    self._limiter.complain()
                    throttled += 1
                    if throttled >= THROTTLED_TRIES or self._closed:
                        raise _marked(self._translate(error, operation), unclear) from error
                    continue
                failed += 1
                unclear |= _is_fault(error)
                if not _is_fault(error) or failed >= FAULT_TRIES or not repeatable or self._closed:
                    raise _marked(self._translate(error, operation), unclear) from error
            except (BotoConnectionError, HTTPClientError) as error:
                failed += 1
                unclear |= _was_sent(error)
                tries = FAULT_TRIES if isinstance(error, ReadTimeoutError) else 2
                if failed >= tries or (unclear and not repeatable) or self._closed:
                    raise _marked(self._unreachable(error), unclear) from error
            except (ResponseParserError, ReplyError) as error:
                failed += 1
                unclear = True
                if failed >= FAULT_TRIES or not repeatable or self._closed:
                    raise _marked(self._unreadable(error, operation), unclear) from error
            except (BotoCoreError, ProfileNotFound) as error:
                raise self._local(error, operation) from error
            self._sleep(0.2 * 2**failed)

    def _translate(self, error: ClientError, operation: str) -> CrowdError:
        code = str(error.response.get("TurkErrorCode") or error.response["Error"].get("Code", "unknown"))
        message = re.sub(r"\s*\(\d{13}[^)]*\)$", "", str(error.response["Error"].get("Message", ""))).rstrip(
            "."
        )
        kind: type[CrowdError] = CrowdError
        if code.lower().endswith("insufficientfunds"):
            kind = FundsError
        skewed = _SKEWED.search(message)
        remedy = ""
        if skewed is not None:
            message, remedy = "the two clocks disagree", f": {_skew(skewed['here'], skewed['there'])}"
        elif code in _KEY_ERRORS:
            remedy = (
                "; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what `mitl crowd keys` shows there"
            )
        raised = kind(
            f"{operation} was refused at {self.url}: {message or 'no reason given'} [{code}]{remedy}"
        )
        raised.code = code
        return raised

    def _unreadable(self, error: Exception, operation: str) -> CrowdError:
        return CrowdError(
            f"{operation} got a reply from {self.url} that is not the API's: {error}; run the command again, and if "
            "this comes again, look for a proxy or a sign-in page between here and there, or check --endpoint-url"
        )

    def _unreachable(self, error: Exception) -> EndpointError:
        if is_amazon(self.url):
            return EndpointError(
                f"cannot reach {self.url}: {CLOSED}; post to mitl's own crowd server instead "
                "(leave out --endpoint-url), and run `mitl serve` when people work"
            )
        refused = _refused_certificate(error)
        if refused is not None:
            return certificates.endpoint_error(self.url, refused)
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
                "AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE to the file that `mitl crowd keys --export` "
                "wrote, or leave out --endpoint-url to use mitl's own crowd server"
            )
        return CrowdError(f"{operation} failed at {self.url}: {' '.join(str(error).split())}")


def _boto_client(url: str, keys: Keys | None) -> Any:
    options: dict[str, Any] = {
        "region_name": REGION,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "retries": {"total_max_attempts": 1},
        "max_pool_connections": MAX_CONNECTIONS,
        "user_agent": "mitl",  # botocore's own is made again for each call, a tenth of what the call takes
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
    if is_loopback(url):
        options["proxies"] = {}
    try:
        session = botocore.session.Session(session_vars=session_vars)
        bundle = session.get_config_variable("ca_bundle")
        if bundle and urlsplit(url).scheme == "https":
            certificates.check_bundle(bundle)
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        session.register_component("response_parser_factory", _Parsers())
        return session.create_client("mturk", endpoint_url=url, config=Config(**options), **credentials)
    except ProfileNotFound as error:
        raise SettingsError(
            f"{error}; choose an existing profile in AWS_PROFILE, or leave out --endpoint-url"
        ) from error
    except (BotoCoreError, OSError, ValueError) as error:
        why = " ".join(str(error).split())
        if why.startswith(("Invalid endpoint", "Invalid IPv6 URL")):
            raise EndpointError(
                f"{url!r} is not an endpoint: {why}; write http://host:port or https://host"
            ) from error
        raise SettingsError(
            f"AWS's settings cannot be used: {why}; correct them in the environment or in AWS's configuration file"
        ) from error


@functools.cache
def _loader(data_path: str | None) -> Any:
    """Reads the API's description and Amazon's list of endpoints, a seventh of a second's work, once a process."""
    return botocore.session.create_loader(data_path)


@functools.cache
def service_model() -> Any:
    """botocore's model of the requester API, as its clients read it."""
    session = botocore.session.Session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session.get_service_model("mturk")


def _marked(error: CrowdError, unclear: bool) -> CrowdError:
    error.unclear = unclear
    return error


def _was_sent(error: Exception) -> bool:
    """Whether a request may have reached the server although its reply did not come."""
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError | ProxyConnectionError):
        return False
    return _refused_certificate(error) is None


def _refused_certificate(error: Exception) -> ValueError | None:
    # Other errors of TLS may come after the request, in the middle of a reply.
    return certificates.refusal(error) if isinstance(error, BotoSSLError) else None


def _skew(here: str, there: str) -> str:
    """Both clocks, and what to do, from the time of a signature and the one at which it was looked at."""
    own, other = (dt.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ") for stamp in (here, there))
    way = "behind" if own < other else "ahead of"
    minutes = round(abs(own - other).total_seconds() / 60)
    return (
        f"this machine says {own:%Y-%m-%d %H:%M:%S} UTC and the server {other:%Y-%m-%d %H:%M:%S} UTC, so this one is "
        f"{minutes // 60} h {minutes % 60:02d} min {way} it, and 15 min are allowed; set the wrong clock (`timedatectl "
        "set-ntp true` keeps it right) and run the command again: the keys are not the matter"
    )


class _Parsers(ResponseParserFactory):  # type: ignore[misc]  # botocore has no types
    def create_parser(self, protocol_name: str) -> JSONParser:
        return _Parser(timestamp_parser=_timestamp)


class _Parser(JSONParser):  # type: ignore[misc]
    """botocore's, which takes what is not JSON, or not the operation's, for an empty success, or trips over it."""

    def parse(self, response: Mapping[str, Any], shape: Any) -> Any:
        try:
            return super().parse(response, shape)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            OSError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise ResponseParserError(f"it does not have the form of one ({error})") from error

    def _do_parse(self, response: Mapping[str, Any], shape: Any) -> Any:
        body = response["body"]
        if not body and response["headers"].get("content-length", "0") != "0":
            raise ResponseParserError("it broke off before its body")
        members = json.loads(body) if body else {}
        if members and shape is not None and not members.keys() & shape.members.keys():
            raise ResponseParserError(f"it holds nothing of a {shape.name}")
        return super()._do_parse(response, shape)

    def _do_error_parse(self, response: Mapping[str, Any], shape: Any) -> Any:
        status, parsed = response["status_code"], super()._do_error_parse(response, shape)
        if status < 500 and parsed["Error"]["Code"] in ("", str(status)):
            told = " ".join(str(parsed["Error"]["Message"]).split())[:80]
            raise ResponseParserError(
                f"HTTP status {status} without the code of an error{told and f', {told!r}'}"
            )
        return parsed

    def _handle_list(self, shape: Any, node: Any) -> Any:
        if not isinstance(node, list) or None in node:
            raise ResponseParserError(f"its {shape.name} is not a list without gaps")
        return super()._handle_list(shape, node)


def _timestamp(value: Any) -> dt.datetime:
    """A time of a reply; MTurk's are seconds since 1970, which botocore would look at as text first."""
    if isinstance(value, int | float):
        return dt.datetime.fromtimestamp(value, dt.UTC)
    moment: dt.datetime = parse_timestamp(value)
    return moment


def _is_throttle(error: ClientError) -> bool:
    code = str(error.response["Error"].get("Code", "")).lower()
    return code in _THROTTLES or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 429


def _is_fault(error: ClientError) -> bool:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500
