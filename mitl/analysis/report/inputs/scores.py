"""Figures that judge the positives and the machine annotators."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.analysis.known_truth import DirectionScores, Score
from mitl.records import Direction


@dataclass(frozen=True, slots=True)
class TruthStats:
    """Positives against the known truth (yes or weak_yes), over all query x gallery pairs."""

    original: DirectionScores
    """The original annotation: before."""
    release: DirectionScores | None
    """After; None until a release is built."""
    by_annotator: tuple[tuple[str, DirectionScores], ...] = ()
    """If each annotator had been the only one: its proposals that were judged positive."""
    hit_rule: DirectionScores | None = None
    """Judged positive, HITs accepted by their own two golds alone."""
    hit_rule_and_record: DirectionScores | None = None
    """The same with the worker's gold record as well."""
    asked: Score | None = None
    """Of the candidate pairs that people were asked about, those that they found; None where nobody was asked."""
    precision_target: float | None = None
    """Share from 0 to 1 that precision is to reach, drawn as a line."""


@dataclass(frozen=True, slots=True)
class EvaluationScore:
    """One metric of one annotator on one set of positives."""

    annotator: str
    positives: str
    """``original``, ``release`` or the name of an official set."""
    direction: Direction
    metric: str
    """R@1, R@5, R-Precision, mAP@R."""
    value: float
    """Share from 0 to 1."""
    low: float | None = None
    """Lower end of the 95 % bootstrap interval over the queries; None where none was made."""
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PreferenceTable:
    """Bradley-Terry scores of a preference study, as its command prints them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    lines: tuple[str, ...] = ()
    """What to know about them; the reason where there are no rows."""


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Pairs whose stated probability fell into one tenth of the scale; shares run from 0 to 1."""

    stated: float
    """Mean probability."""
    observed: float
    """Share that was a match."""
    cases: int
    low: float
    """Lower end of the 95 % interval of the share (Clopper and Pearson)."""
    high: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the probabilities of the answers can be trusted, held against one yardstick."""

    against: str
    """What was taken for true, in words."""
    aggregator: str
    cases: int
    error: float
    """Expected calibration error, 0 to 1: mean distance of stated and observed, weighted by cases."""
    brier: float
    log_loss: float
    """In nats."""
    bins: tuple[ReliabilityBin, ...]
