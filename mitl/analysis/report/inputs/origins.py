"""How the report's data came to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RebuildStep:
    """One command of the way from the data set to this file, with what it must come to."""

    command: str
    """As it is typed."""
    note: str = ""
    """What it cannot say: inputs to bring along, or what people did."""
    hashes: tuple[tuple[str, str], ...] = ()
    """(of what, SHA-256 or the run's own hash)."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """How it was made; names and values are shown as they are. No clock times: equal data, equal report."""

    steps: tuple[RebuildStep, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    seeds: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()
