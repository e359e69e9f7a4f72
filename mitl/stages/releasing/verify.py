"""Verifying a release from its files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

from mitl.positives.release import versions
from mitl.positives.verifying import Verification, verify_release
from mitl.records import StageResult, Verdict, several
from mitl.records.results import printed_by

_SHOWN = 20
"""Differences that are told, and then how many more there are."""


@printed_by("verify")
class ReleaseVerifyCounts(TypedDict):
    """What a release's files say."""

    files: Annotated[int, "files whose hashes were compared with the manifest"]
    certified: Annotated[bool, "whether it holds a certificate that its own answers give again"]
    audited: Annotated[int, "audited pairs; 0 without a certificate"]
    answers: Annotated[int, "answers on them"]
    certificate: Annotated[
        dict[str, Any] | None, "every figure as the released answers give it; null where there is none"
    ]
    differences: Annotated[list[str], "what is not as it was released, a line each"]


@printed_by("verify", "build-dataset", "rate release", key="paths")
class ReleasePaths(TypedDict):
    """The release that was verified or built."""

    release: Annotated[str, "the release's folder"]


def verify(folder: Path) -> Verdict:
    """Check a release's hashes, and compute its certificate again; it needs neither project nor database.

    Raises:
        ReleaseError: the folder is not a release.
    """
    verification = verify_release(folder)
    counts: ReleaseVerifyCounts = {
        "files": len(verification.manifest["files"]),
        "certified": verification.certificate is not None and not verification.differences,
        "audited": verification.audited,
        "answers": verification.answers,
        "certificate": None if verification.certificate is None else verification.certificate.as_json(),
        "differences": list(verification.differences),
    }
    paths: ReleasePaths = {"release": str(folder)}
    ours = versions()["mitl"]
    warnings = (
        (f"mitl {verification.made_by} made it and {ours} checks it: another version may bound otherwise",)
        if verification.differences and verification.made_by != ours
        else ()
    )
    result = StageResult(counts=counts, paths=paths, lines=tuple(_lines(verification)), warnings=warnings)
    if not verification.differences:
        return Verdict(result)
    first, more = verification.differences[0], len(verification.differences) - 1
    return Verdict(
        result,
        f"{verification.name} is not as it was released: {first}" + (f"; {more:,} more" if more else ""),
    )


def _lines(verification: Verification) -> list[str]:
    if verification.differences:
        rest = verification.differences[1:]
        left = len(rest) - _SHOWN
        return [*rest[:_SHOWN], *([f"and {left:,} more"] if left > 0 else [])]
    lines = [f"{verification.name}: {several(len(verification.manifest['files']), 'file')} as released"]
    if verification.certificate is None:
        return [*lines, "no certificate: it was released without a complete audit"]
    return [
        *lines,
        f"certified by {several(verification.audited, 'audited pair')} with "
        f"{several(verification.answers, 'blind answer')}, computed again from these files alone:",
        *verification.certificate.lines(),
    ]
