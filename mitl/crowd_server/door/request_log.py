"""One line of the log for each request: its number, method, kind of page, status and time.

Addresses of pages hold tokens and ids of workers, so the log names the kind of page and never the address; no
query, no header and no body is ever written.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from starlette.types import Scope

log = logging.getLogger(__name__)
_OPERATION = re.compile(r"MTurkRequesterServiceV20170117\.([A-Za-z]{1,60})")


def note(scope: Scope, request_id: str, status: int, seconds: float) -> None:
    """Write the line; ``status`` 0 says that the caller went away before an answer."""
    if log.isEnabledFor(logging.INFO):
        log.info("%s %s %s %d %.1f ms", request_id, _method(scope), kind_of(scope), status, seconds * 1000)


def kind_of(scope: Scope) -> str:
    """The path with names for the parts that differ, or the operation of the API."""
    if "endpoint" not in scope:
        # No page was reached: the address is whatever the caller made up.
        return "(no page)"
    path = str(scope["path"])
    if path == "/":
        return _operation(scope) or path
    params: dict[str, Any] = scope.get("path_params", {})
    for name, value in params.items():
        path = path.replace(str(value), "{" + name + "}")
    return path


def _operation(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-amz-target":
            found = _OPERATION.fullmatch(value.decode("latin-1"))
            return found[1] if found else None
    return None


def _method(scope: Scope) -> str:
    method = str(scope["method"])
    return method if method.isalpha() and len(method) <= 10 else "?"
