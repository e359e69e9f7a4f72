"""The report's sections, in the page's order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """One section; its page part is the file of its id under ``pages/sections``."""

    id: str
    word: str
    """In the navigation."""
    heading: str


GROUPS: tuple[tuple[str, tuple[Section, ...]], ...] = (
    (
        "Pairs",
        (
            Section("funnel", "Funnel", "From pairs to positives"),
            Section("proposals", "Proposals", "Proposals by annotator"),
            Section("answers", "Answers", "Answers by annotator and rank"),
            Section("rationale", "Reasons", "Why descriptions fall short"),
        ),
    ),
    (
        "People",
        (
            Section("workers", "Workers", "Controls and workers"),
            Section("money", "Money", "Money and time"),
        ),
    ),
    (
        "Positives",
        (
            Section("multiplicity", "Per query", "Positives per query"),
            Section("truth", "Truth", "Against the known truth"),
            Section("reliability", "Reliability", "How far the probabilities can be trusted"),
        ),
    ),
    (
        "Machines",
        (
            Section("evaluation", "Scores", "Scores of the machines"),
            Section("diversity", "Diversity", "How differently the machines rank"),
            Section("bias", "Bias", "How the choice of machines bends the scores"),
        ),
    ),
    (
        "To look at",
        (
            Section("examples", "Examples", "Queries with their positives"),
            Section("disputes", "Disagreements", "Disagreements worth a look"),
        ),
    ),
    ("Again", (Section("provenance", "Rebuild", "How to rebuild it"),)),
)

SECTIONS = tuple(section for _, sections in GROUPS for section in sections)
