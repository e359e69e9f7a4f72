"""A health check for containers: ``python -m mitl.crowd_server.health URL`` ends with 0 where the server answers.

It imports nothing of the server, so that a check every few seconds costs little.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPException
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

TIMEOUT_S = 4


def check(url: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """What is wrong with the crowd server at ``url``, in a line; None where it is well."""
    if not url.startswith(("http://", "https://")):
        return f"{url} is not the address of a server, which begins with http:// or https://"
    try:
        # No proxy of the environment may answer in the server's place.
        with build_opener(ProxyHandler({})).open(f"{url.rstrip('/')}/healthz", timeout=timeout_s) as reply:
            said = json.load(reply)
    except (URLError, OSError, HTTPException, ValueError) as error:
        return f"{url} does not answer as a crowd server: {error}"
    if not isinstance(said, dict) or said.get("service") != "mitl-crowd":
        return f"{url} answers, but is not mitl's crowd server"
    return None if said.get("status") == "ok" else f"{url} says that it is {said.get('status')!r}"


def main(arguments: list[str]) -> int:
    """Check one address and say what is wrong; the exit status."""
    if len(arguments) != 1:
        print("usage: python -m mitl.crowd_server.health URL", file=sys.stderr)
        return 2
    fault = check(arguments[0])
    if fault is not None:
        print(fault, file=sys.stderr)
    return int(fault is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
