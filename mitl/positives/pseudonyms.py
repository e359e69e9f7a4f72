"""Names for workers that tell nothing of their ids, and the order in which their answers are shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable

from mitl.errors import ReleaseError
from mitl.records import Judgement, Pair

MIN_SALT_BYTES = 16


def pseudonym(worker: str, salt: bytes) -> str:
    """``w_`` and 16 characters (80 bits) of HMAC-SHA-256 of the worker's id under the release's secret salt.

    The same worker has one name within a release and unrelated names in two, as each release has its own
    salt.

    Raises:
        ReleaseError: the salt has fewer than 16 bytes, so that ids could be found by trying.
    """
    if len(salt) < MIN_SALT_BYTES:
        raise ReleaseError(f"the salt has {len(salt)} bytes, but at least {MIN_SALT_BYTES} are needed")
    digest = hmac.new(salt, worker.encode(), hashlib.sha256).digest()
    return "w_" + base64.b32encode(digest[:10]).decode("ascii").lower()


def shown_judgements(judgements: Iterable[Judgement], salt: bytes) -> list[tuple[str, Judgement]]:
    """The judgements that a release shows, each with its worker's pseudonym; gold controls are left out.

    In order of pair, pseudonym and then content: nothing of the order in which they came in is left.
    """
    shown = [judgement for judgement in judgements if not judgement.role.is_gold]
    names = {worker: pseudonym(worker, salt) for worker in {judgement.worker for judgement in shown}}
    return sorted(((names[j.worker], j) for j in shown), key=_place)


def _place(named: tuple[str, Judgement]) -> tuple[Pair, str, str, int, bool, int, list[int], list[int]]:
    worker, judgement = named
    return (
        judgement.pair,
        worker,
        judgement.outcome.value,
        judgement.label.code if judgement.label else 0,
        judgement.usable,
        -1 if judgement.active_ms is None else judgement.active_ms,
        [shortcoming.code for shortcoming in judgement.shortcomings],
        [concept.code for concept in judgement.concepts],
    )
