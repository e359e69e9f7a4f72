"""Fused probabilities on disk: a Parquet file and, beside it, what it was made of.

The second is written last, so that scores without it are none.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from sqlalchemy.orm import Session

from mitl.core.whole_files import one_clear_line, whole_file
from mitl.crowd.context import Context
from mitl.db.store import items as item_store
from mitl.db.store import proposals
from mitl.records import Environment
from mitl.records.audits import FUSED
from mitl.records.frames import frame
from mitl.settings import Settings

FOLDER = "fused"
"""Within ``runs``."""
_SAID = {"environment", "runs", "made_at"}
"""What every description has."""


@dataclass(frozen=True, slots=True)
class KeptScores:
    """The scores of one configuration."""

    path: Path
    """Of the Parquet file."""

    @property
    def about(self) -> Path:
        """JSON of what it was made of, and how good it is."""
        return self.path.with_suffix(".json")

    def described(self) -> dict[str, Any] | None:
        """What the scores were made of; None where they are not there as a whole."""
        try:
            said: dict[str, Any] = json.loads(self.about.read_bytes())
            whole = said.keys() >= _SAID and dt.datetime.fromisoformat(said["made_at"]).tzinfo is not None
        except (OSError, ValueError, TypeError, AttributeError):  # also of what is no object, or no time
            return None
        return said if whole and self.path.is_file() else None

    def read(self) -> pd.DataFrame | None:
        """``FUSED``; None where the file cannot be read any more."""
        try:
            stored = pd.read_parquet(self.path)
            return frame(FUSED, {name: stored[name] for name in FUSED})
        except (OSError, ValueError, KeyError, TypeError, NotImplementedError):  # also of a type's name
            return None

    def write(self, fused: pd.DataFrame, about: Mapping[str, Any]) -> None:
        """Keep both; RetrievalError where the disk is full."""
        with one_clear_line(self.path, "run the command again when there is room"):
            with whole_file(self.path) as sink:
                fused.to_parquet(sink, index=False)
            self.describe(about)

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write what they were made of."""
        with whole_file(self.about) as sink:
            sink.write(json.dumps(about, indent=1, sort_keys=True).encode())


def kept_scores(
    settings: Settings, environment: Environment, runs: Sequence[str]
) -> Iterator[tuple[dict[str, Any], KeptScores]]:
    """What is said of each file that was made in this environment from these `sources`, newest first."""
    by_time = []
    for about in (settings.runs / FOLDER).glob("*.json"):
        kept = KeptScores(about.with_suffix(".parquet"))
        said = kept.described()
        if said is not None and (said["environment"], said["runs"]) == (environment, list(runs)):
            by_time.append((said["made_at"], about.name, said, kept))
    for _, _, said, kept in sorted(by_time, key=lambda row: row[:2], reverse=True):
        yield said, kept


def sources(session: Session) -> list[str]:
    """What probabilities are made from now: data set, the runs' hashes, the withdrawn annotators they do without.

    Runs alone do not tell data sets apart: another one under the same name and ids has runs of the same hashes.
    """
    runs = [
        f"data set {item_store.dataset(session).content_sha256}",
        *(run.hash for run in proposals.runs(session)),
    ]
    return [*runs, *(f"without {name}" for name in sorted(proposals.withdrawn_names(session)))]


def fused_scores(context: Context) -> pd.DataFrame | None:
    """``FUSED``: the newest probabilities made from the present runs; None where there are none."""
    for _, kept in kept_scores(context.settings, context.environment, sources(context.session)):
        fused = kept.read()
        if fused is not None:
            return fused
    return None


def stamp(now: dt.datetime) -> str:
    """A time that sorts as text."""
    return now.astimezone(dt.UTC).isoformat(timespec="microseconds")
