"""Fetching a few pictures as a worker's browser would, before anybody is asked to look at them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import httpx

from mitl.addresses import is_loopback
from mitl.errors import DatasetError
from mitl.proposals.sampling import shuffled
from mitl.records import Environment
from mitl.stages.publishing.campaign import Campaign

TIMEOUT_S, CONNECT_TIMEOUT_S = 15.0, 5.0
TRIES = 2
"""Public stores of pictures say "slow down" now and then."""


def probe_pictures(
    sources: Mapping[str, str],
    base: str,
    n: int,
    *,
    seed: int,
    files: Mapping[str, Path] | None = None,
) -> int:
    """Fetch ``n`` random pictures and return how many were fetched.

    Args:
        sources: external id of an image → its address on the page, root-relative or https.
        base: where root-relative addresses are served.
        files: pictures that are not served yet and are looked at where they lie.

    Raises:
        DatasetError: one does not come, or is no picture; names the image.
    """
    chosen = shuffled(sources, seed, "probed pictures")[:n]
    with _Browsers() as browsers:
        for image in chosen:
            source = sources[image]
            if files is not None and image in files:
                _check_file(image, files[image])
                continue
            url = base.rstrip("/") + source if source.startswith("/") else source
            problem = _problem(browsers.of(url), url)
            if problem is not None:
                raise DatasetError(
                    f"workers could not see image {image!r}: {url} {problem}; {_advice(source)}, or post without "
                    "looking with --probe-images 0"
                )
    return len(chosen)


def probe_or_warn(
    sources: Mapping[str, str],
    base: str,
    campaign: Campaign,
    *,
    seed: int,
    files: Mapping[str, Path] | None = None,
) -> tuple[str, ...]:
    """The same; with practice money, where scripted workers see none, a failure is only a warning, given back."""
    try:
        probe_pictures(sources, base, campaign.probes, seed=seed, files=files)
    except DatasetError as error:
        if campaign.environment is not Environment.SANDBOX:
            raise
        return (str(error),)
    return ()


class _Browsers:
    """Clients that keep their connections: one for this machine, which no proxy is asked for, and one for the rest."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._known: dict[bool, httpx.Client] = {}

    def __enter__(self) -> _Browsers:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def of(self, url: str) -> httpx.Client:
        """The client for an address."""
        near = is_loopback(url)
        if near not in self._known:
            client = httpx.Client(
                timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
                follow_redirects=True,
                trust_env=not near,
            )
            self._known[near] = self._open.enter_context(client)
        return self._known[near]


def _problem(browser: httpx.Client, url: str) -> str | None:
    """What is wrong with a picture at an address; None where a browser would show it."""
    problem: str | None = None
    for _ in range(TRIES):
        try:
            reply = browser.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = f"cannot be fetched ({type(error).__name__}: {error})"
            continue
        if reply.status_code == 200:
            return _unlike_picture(reply)
        problem = f"answers {reply.status_code}"
    return problem


def _unlike_picture(reply: httpx.Response) -> str | None:
    kind = reply.headers.get("content-type", "")
    if not kind.startswith("image/"):
        return f"gives {kind or 'something of no type'}, not a picture"
    fault = _fault(reply.content)
    return None if fault is None else f"gives {len(reply.content):,} bytes that are no picture ({fault})"


def _check_file(image: str, path: Path) -> None:
    fault = _fault(path.read_bytes())
    if fault is not None:
        raise DatasetError(
            f"workers could not see image {image!r}: {path} is no picture ({fault}); mend the file"
        )


def _fault(content: bytes) -> str | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as picture:
            picture.verify()
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises for what it cannot read
        return str(error)
    return None


def _advice(source: str) -> str:
    if source.startswith("/"):
        return (
            "serve the project's folder public/ there (`mitl serve --public DIR`), or, where that address is a tunnel "
            "to a server elsewhere, set image_base_url in [crowd] of mitl.toml to where public/ is served"
        )
    return (
        "make the project's folder public/ reachable at image_base_url, or mend the image addresses given to "
        "`mitl init`"
    )
