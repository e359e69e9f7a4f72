"""The pipeline's declarative base."""

from __future__ import annotations

from sqlalchemy import MetaData
from sqlalchemy.orm import DeclarativeBase

from mitl.db.base import NAMING, TYPES, enum_type
from mitl.records import (
    AnnotatorKind,
    ComparisonRole,
    Decision,
    Direction,
    Environment,
    ExclusionKind,
    HitState,
    IdKind,
    JournalState,
    JudgementSource,
    Label,
    OriginalVerdict,
    Outcome,
    PairRole,
    Preference,
    RationaleKind,
)

_ENUMS = (
    AnnotatorKind,
    ComparisonRole,
    Decision,
    Direction,
    Environment,
    ExclusionKind,
    HitState,
    IdKind,
    JournalState,
    JudgementSource,
    Label,
    OriginalVerdict,
    OriginalVerdict,
    Outcome,
    PairRole,
    Preference,
    RationaleKind,
)


class Base(DeclarativeBase):
    """The pipeline's metadata."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {**TYPES, **{enum: enum_type(enum) for enum in _ENUMS}}  # noqa: RUF012
