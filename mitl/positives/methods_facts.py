"""What a methods section is made of: the facts of a project, and sentences that are not rendered yet."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.analysis.report.inputs import EvaluationScore
from mitl.positives.release_input import ReleaseInput
from mitl.positives.summary import Summary
from mitl.records import AnnotatorKind


@dataclass(frozen=True, slots=True)
class Cite:
    """A citation within a sentence."""

    keys: tuple[str, ...]


Part = str | Cite
Sentence = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph under its run-in heading."""

    title: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True, slots=True)
class UsedMachine:
    """A machine annotator as a paper names it."""

    name: str
    kind: AnnotatorKind
    fingerprint: str
    """SHA-256 of what decides its similarities."""
    network: str | None = None
    """Which published network it is; None for others."""
    small: bool = False
    """Whether it is that network at a small size, trained here."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the section is made of."""

    data: ReleaseInput
    summary: Summary
    dataset_kind: str
    machines: tuple[UsedMachine, ...]
    release: str | None
    """The latest release that was built; None where none was, and the figures are of what one would hold."""
    other_work: tuple[tuple[str, int], ...] = ()
    """(what was asked, HITs) of other kinds of campaign: ``rankings``, ``similarity``."""
    audit_answers: int = 0
    """Answers that count for audits of recall, whose questions stand on HITs of pairs; certificate or not."""
    scores: tuple[EvaluationScore, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()

    @property
    def hits(self) -> int:
        """HITs of pairs that were posted."""
        return sum(batch.hits for batch in self.data.origins.batches)
