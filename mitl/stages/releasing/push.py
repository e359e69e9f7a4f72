"""A release put on a hub as a data set of its own, with the user's own token."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from mitl.errors import ReleaseError, SettingsError, UsageError
from mitl.positives.folders import FORMAT, MANIFEST, RATINGS_FORMAT
from mitl.positives.verifying import verify_release
from mitl.records import Environment, StageResult, several
from mitl.records.results import printed_by

if TYPE_CHECKING:
    from huggingface_hub import DatasetInfo, HfApi

_TO = re.compile(r"hub:([\w.-]+/)?[\w.-]+")
_OWN = {".gitattributes"}
"""What a hub puts into a new repository by itself."""
_AGAIN = "push again: if all had arrived and only the reply was lost, it says so"


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What is put where."""

    release: Path
    to: str
    """``hub:NAME`` or ``hub:OWNER/NAME``."""
    public: bool = False
    """Whether everybody may see a repository that this makes."""


@printed_by("push")
class PushCounts(TypedDict):
    """What `mitl push` put there."""

    files: Annotated[int, "files of the release"]
    removed: Annotated[int, "files of an earlier release that this one lacks, removed"]
    private: Annotated[bool, "whether the repository is private"]


@printed_by("push", key="paths")
class PushPaths(TypedDict):
    """What `mitl push` read and wrote."""

    release: Annotated[str, "the release"]
    hub: Annotated[str, "where it can be seen"]
    commit: Annotated[str, "the commit that holds it"]


def push(request: PushRequest) -> StageResult:
    """Put the files of a release into a repository of the hub, in one commit; there it is whole or not at all.

    The token and the hub's address are those of huggingface_hub: `HF_TOKEN` or its own login, and `HF_ENDPOINT`.

    Raises:
        UsageError: the place is no ``hub:NAME``, or huggingface_hub is not installed.
        SettingsError: there is no token.
        ReleaseError: the folder is no release or was changed, the repository holds something else, or the hub refuses.
    """
    if _TO.fullmatch(request.to) is None:
        raise UsageError(f"{request.to!r} is no place to push to; write hub:NAME or hub:OWNER/NAME")
    verification = verify_release(request.release)
    if verification.differences:
        raise ReleaseError(
            f"{str(request.release)!r} is not as it was released: {verification.differences[0]}; build it again"
        )
    try:
        from huggingface_hub import HfApi, get_token
    except ImportError as error:
        raise UsageError(
            "pushing needs huggingface_hub, which is not installed; pip install 'mitl[hub]'"
        ) from error
    token = get_token()
    if not token:
        raise SettingsError("there is no token for the hub; set HF_TOKEN, or log in by `hf auth login`")
    api = HfApi(token=token)
    with _one_line(api.endpoint, token):
        return _pushed(api, request, verification.name, verification.manifest)


def _pushed(api: HfApi, request: PushRequest, title: str, manifest: Mapping[str, Any]) -> StageResult:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    repository = api.create_repo(
        request.to.removeprefix("hub:"), repo_type="dataset", private=not request.public, exist_ok=True
    )
    name = repository.repo_id
    before = api.dataset_info(name)
    files = sorted({*manifest["files"], MANIFEST})
    present = {file.rfilename for file in before.siblings or ()} - _OWN
    strangers = sorted(present - (_released(api, before) if MANIFEST in present else set()))
    if strangers:
        raise ReleaseError(
            f"{repository} holds {several(len(strangers), 'file')} of no release, first {strangers[0]!r}, so it is "
            "left alone; choose another name"
        )
    old = sorted(present - set(files))
    operations = [CommitOperationAdd(file, request.release / file) for file in files]
    removals = [CommitOperationDelete(file) for file in old]
    commit = api.create_commit(
        name,
        [*operations, *removals],
        commit_message=f"{title}, released by mitl",
        repo_type="dataset",
        parent_commit=before.sha,
    )
    changed = commit.oid != before.sha
    counts: PushCounts = {"files": len(files), "removed": len(old), "private": bool(before.private)}
    paths: PushPaths = {"release": str(request.release), "hub": str(repository), "commit": commit.oid}
    seen = "private: its owner alone sees it" if before.private else "public: everybody sees it"
    told = f"{several(len(files), 'file')} of {title} at {repository}"
    sandbox = manifest.get("environment") == Environment.SANDBOX
    return StageResult(
        status="done" if changed else "nothing_to_do",
        counts=counts,
        paths=paths,
        lines=(told if changed else f"nothing to do: {repository} holds this release", seen),
        warnings=("its answers come of the sandbox: they are no data of people",) if sandbox else (),
    )


def _released(api: HfApi, there: DatasetInfo) -> set[str]:
    """The files of the release that a repository's manifest is of; none where it is that of something else."""
    from huggingface_hub import get_session

    url = f"{api.endpoint}/datasets/{there.id}/resolve/{there.sha}/{MANIFEST}"
    answer = get_session().get(url, headers={"Authorization": f"Bearer {api.token}"})
    answer.raise_for_status()
    try:
        told = answer.json()
    except ValueError:
        return set()
    is_release = isinstance(told, dict) and told.get("format") in (FORMAT, RATINGS_FORMAT)
    return {MANIFEST, *told["files"]} if is_release and isinstance(told.get("files"), dict) else set()


@contextmanager
def _one_line(endpoint: str, token: str) -> Iterator[None]:
    """What the hub or the way there says, as one line without the token; warnings of its library stay behind."""
    from huggingface_hub.errors import HfHubHTTPError

    log = logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = {
            401: "; make a token that may write, and set HF_TOKEN or log in by `hf auth login`",
            403: "; make a token that may write there, or choose another name",
            412: "; somebody else changed it meanwhile: push again",
        }.get(status, "")
        said = _plain(error.server_message or "no reason", token)
        raise ReleaseError(f"the hub at {endpoint} answered {status}: {said}{advice}") from None
    except (AttributeError, KeyError, TypeError) as error:
        # The library takes a reply apart without a look at its form.
        said = _plain(f"{type(error).__name__}: {error}", token)
        raise ReleaseError(f"what answers at {endpoint} speaks as no hub: {said}; {_AGAIN}") from error
    except (OSError, ValueError, RuntimeError) as error:
        raise ReleaseError(f"pushing to {endpoint} failed: {_plain(str(error), token)}; {_AGAIN}") from None
    except Exception as error:
        # The library's HTTP client has errors of its own, whose family has changed with its version.
        if "httpx" not in type(error).__module__:
            raise
        raise ReleaseError(
            f"the hub at {endpoint} cannot be reached: {_plain(str(error), token)}; {_AGAIN}"
        ) from None
    finally:
        log.setLevel(level)


def _plain(said: str, token: str) -> str:
    return " ".join(said.replace(token, "…").split()) or "no reason"
