"""Releases, the secrets of their pseudonyms, and what a person said of originals that people or CxC refused.

The exclusion lists that follow from a verdict are kept in line with it.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from mitl.db.models import ExclusionEntry, ItemRow, OriginalReview, SideRow, StoredRelease
from mitl.db.store.items import RIGHT, pair_sides
from mitl.records import Environment, ExclusionKind, OriginalVerdict, Pair


def kept_salt(session: Session, name: str) -> bytes | None:
    """The pseudonyms' secret of a release; None before its first build."""
    digits = session.scalar(select(StoredRelease.salt).where(StoredRelease.name == name))
    return None if digits is None else bytes.fromhex(digits)


def salt(session: Session, name: str) -> bytes:
    """The pseudonyms' secret of a release, made at its first build and kept for its rebuilds."""
    found = kept_salt(session, name)
    if found is None:
        found = secrets.token_bytes(32)
        session.add(StoredRelease(name=name, salt=found.hex()))
        session.flush()
    return found


def salts(session: Session) -> dict[str, bytes]:
    """The secret of everything that shows pseudonyms, by name: releases of positives and of ratings, reports."""
    query = select(StoredRelease.name, StoredRelease.salt).order_by(StoredRelease.id)
    return {name: bytes.fromhex(digits) for name, digits in session.execute(query)}


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A release that was built."""

    name: str
    manifest_sha256: str
    rules: Mapping[str, Any]
    """How its sources were merged."""
    flags: tuple[str, ...] = ()
    """What else was said of it, as options of ``mitl build-dataset``."""
    environment: Environment | None = None
    """Whose answers it holds; None of one that was built before that was kept."""
    turn: int = 0
    """Rises with each build, under whatever name."""
    held: Mapping[str, int] | None = None
    """``Summary.held`` of its files; None of one that was built before that was kept."""
    queries: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Direction → the queries that were named for it; without the directions that list what was proposed for."""

    @property
    def humans_only(self) -> bool:
        """Whether it left out what a machine labelled."""
        return HUMANS_ONLY in self.flags


HUMANS_ONLY = "--humans-only"
_BESIDE = ("flags", "environment", "turn", "held", "queries")
"""What is kept beside the rules."""


def set_built(session: Session, row: ReleaseRow) -> None:
    """Remember what was released under a name, and how, as the latest one."""
    turn = 1 + max((other.turn for other in built(session)), default=0)
    kept = {**row.rules, **{name: getattr(row, name) for name in _BESIDE}, "turn": turn}
    session.execute(
        update(StoredRelease)
        .where(StoredRelease.name == row.name)
        .values(manifest_sha256=row.manifest_sha256, rules=json.dumps(kept, sort_keys=True))
    )


def built(session: Session, environment: Environment | None = None) -> list[ReleaseRow]:
    """The releases that were built, of all environments or of one, in the order of their latest builds."""
    query = select(StoredRelease.name, StoredRelease.manifest_sha256, StoredRelease.rules).order_by(
        StoredRelease.id
    )
    rows = []
    for name, sha256, kept in session.execute(query):
        if sha256 is not None and kept is not None:
            rules = json.loads(kept)
            beside = {key: rules.pop(key) for key in _BESIDE if key in rules}
            rows.append(ReleaseRow(name, sha256, rules, **beside))
    return sorted(
        (row for row in rows if None in (environment, row.environment) or row.environment == environment),
        key=lambda row: row.turn,
    )


SOURCE = "review of originals"
_REASONS = {
    OriginalVerdict.WRONG: "wrong for its own image",
    OriginalVerdict.MEANINGLESS: "describes nothing",
}


def verdicts(session: Session) -> dict[int, OriginalVerdict]:
    """Caption → what was said of it."""
    return dict(session.execute(select(OriginalReview.item_id, OriginalReview.verdict)).all())


def set_verdict(session: Session, pair: Pair, verdict: OriginalVerdict, now: dt.datetime) -> bool:
    """Store a verdict on a caption with its own image and bring the exclusion list in line; whether it is news.

    Only entries that this review made are ever taken back: lists that came with the data set stay, and what they
    name already is not listed again.
    """
    left, right = pair_sides(session)
    of_pair = (OriginalReview.side_id == right, OriginalReview.item_id == pair.caption_id)
    stored = session.scalar(select(OriginalReview.verdict).where(*of_pair))
    if stored is verdict:
        return False
    if stored is None:
        session.add(OriginalReview(side_id=right, item_id=pair.caption_id, verdict=verdict, at=now))
    else:
        session.execute(update(OriginalReview).where(*of_pair).values(verdict=verdict, at=now))
        session.execute(
            delete(ExclusionEntry).where(
                ExclusionEntry.right_side_id == right,
                ExclusionEntry.right_id == pair.caption_id,
                ExclusionEntry.source == SOURCE,
            )
        )
    if verdict is not OriginalVerdict.KEEP:
        meaningless = verdict is OriginalVerdict.MEANINGLESS
        entry = {
            "kind": ExclusionKind.CAPTION if meaningless else ExclusionKind.PAIR,
            "left_side_id": None if meaningless else left,
            "left_id": None if meaningless else pair.image_id,
            "right_side_id": right,
            "right_id": pair.caption_id,
        }
        if session.scalar(select(ExclusionEntry.id).filter_by(**entry).limit(1)) is None:
            session.add(ExclusionEntry(**entry, reason=_REASONS[verdict], source=SOURCE))
    session.flush()
    return True


def exclude_images(session: Session, image_ids: Collection[int], reason: str, source: str) -> int:
    """Take these images out of the positives, each once; returns how many were not excluded before."""
    left, _ = pair_sides(session)
    query = select(ExclusionEntry.left_id).where(ExclusionEntry.kind == ExclusionKind.IMAGE)
    new = sorted(set(image_ids) - set(session.scalars(query)))
    session.add_all(
        ExclusionEntry(
            kind=ExclusionKind.IMAGE, left_side_id=left, left_id=image, reason=reason, source=source
        )
        for image in new
    )
    session.flush()
    return len(new)


def captions_by_external_id(session: Session, external_ids: Collection[str]) -> dict[str, Pair]:
    """The original pair of each caption that is known by these ids."""
    query = (
        select(ItemRow.external_id, ItemRow.group_id, ItemRow.id)
        .join(SideRow, SideRow.id == ItemRow.side_id)
        .where(SideRow.name.in_(RIGHT))
    )
    names = set(external_ids)
    return {
        name: Pair(image, id_)
        for name, image, id_ in session.execute(query)
        if name in names and image is not None
    }
