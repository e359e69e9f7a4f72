"""Checking AWS Signature Version 4 on requests to the requester API.

Source: AWS General Reference, "Create a signed AWS API request". The API has one path and no query, but both
are canonicalised all the same, because the signature covers them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from mitl.crowd_server.protocol.errors import aws

SERVICE = "mturk-requester"
REGIONS = ("us-east-1", "sandbox")
"""MTurk lived in us-east-1 only; ``sandbox`` is botocore's pseudo-region for the sandbox host."""
MAX_SKEW = dt.timedelta(minutes=15)
_STAMP = "%Y%m%dT%H%M%SZ"

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)"
    r"/aws4_request\s*,\s*SignedHeaders=(?P<headers>[a-z0-9;_-]+)\s*,\s*Signature=(?P<signature>[0-9a-f]{64})\s*$"
)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """What a signature covers, as it came over the wire; ``headers`` has lower-case names."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


def verify(request: SignedRequest, secret_of: Callable[[str], str | None], now: dt.datetime) -> str:
    """The access key that signed this request.

    Raises TurkError (with AWS's common error types) where the signature is missing, malformed, of an unknown
    key, too old or too new, or wrong.
    """
    header = request.headers.get("authorization")
    if not header:
        raise aws("MissingAuthenticationTokenException", "Request is missing Authentication Token")
    parts = _AUTHORIZATION.match(header)
    stamp = request.headers.get("x-amz-date", "")
    if parts is None or not re.fullmatch(r"\d{8}T\d{6}Z", stamp):
        raise aws(
            "IncompleteSignatureException",
            "Authorization header requires 'Credential', 'SignedHeaders', 'Signature' and an 'X-Amz-Date' header.",
        )
    secret = secret_of(parts["key"])
    if secret is None:
        raise aws("UnrecognizedClientException", "The security token included in the request is invalid.")
    _check_scope(parts, stamp, now)
    signed = parts["headers"].split(";")
    bare = {"host", *(name for name in request.headers if name.startswith("x-amz-"))} - set(signed)
    if bare:
        # X-Amz-Target names the operation: left unsigned, anybody on the way could change it.
        raise aws(
            "InvalidSignatureException",
            f"'Host' and every 'X-Amz-' header must be signed; missing: {', '.join(sorted(bare))[:200]}.",
        )
    expected = _signature(request, parts, signed, stamp, secret)
    if not hmac.compare_digest(expected, parts["signature"]):
        raise aws(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. "
            "Check your AWS Secret Access Key and signing method.",
        )
    return parts["key"]


def _check_scope(parts: re.Match[str], stamp: str, now: dt.datetime) -> None:
    if parts["service"] != SERVICE or parts["region"] not in REGIONS or parts["date"] != stamp[:8]:
        raise aws(
            "InvalidSignatureException",
            f"Credential should be scoped to the date of X-Amz-Date, region us-east-1 and service {SERVICE}.",
        )
    try:
        signed_at = dt.datetime.strptime(stamp, _STAMP).replace(tzinfo=dt.UTC)
    except ValueError as error:
        raise aws("IncompleteSignatureException", f"X-Amz-Date is not a time: {stamp}") from error
    if signed_at < now - MAX_SKEW:
        raise aws(
            "InvalidSignatureException",
            f"Signature expired: {stamp} is now earlier than {now - MAX_SKEW:{_STAMP}} ({now:{_STAMP}} - 15 min.)",
        )
    if signed_at > now + MAX_SKEW:
        raise aws(
            "InvalidSignatureException",
            f"Signature not yet current: {stamp} is still later than {now + MAX_SKEW:{_STAMP}} "
            f"({now:{_STAMP}} + 15 min.)",
        )


def _signature(
    request: SignedRequest, parts: re.Match[str], signed: list[str], stamp: str, secret: str
) -> str:
    lines = [
        request.method,
        quote(unquote(request.path) or "/", safe="/-_.~"),
        _canonical_query(request.query),
    ]
    lines += [f"{name}:{' '.join(request.headers.get(name, '').split())}" for name in signed]
    lines += ["", ";".join(signed), hashlib.sha256(request.body).hexdigest()]
    scope = f"{parts['date']}/{parts['region']}/{parts['service']}/aws4_request"
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for step in (parts["date"], parts["region"], parts["service"], "aws4_request", text):
        key = hmac.new(key, step.encode(), hashlib.sha256).digest()
    return key.hex()


def _canonical_query(query: str) -> str:
    pairs = [part.partition("=") for part in query.split("&") if part]
    encoded = [(quote(unquote(k), safe="-_.~"), quote(unquote(v), safe="-_.~")) for k, _, v in pairs]
    return "&".join(f"{k}={v}" for k, v in sorted(encoded))
