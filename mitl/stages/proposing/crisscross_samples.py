"""What phase 1 sampled, kept as a file; what of a sampling is not stored yet; and what people said of those pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mitl.core.whole_files import one_clear_line, whole_file
from mitl.judgements.similarity import aggregate, counting
from mitl.proposals.crisscross import RATED, CaptionGroups
from mitl.records import Table
from mitl.records.frames import frame
from mitl.records.similarity import METHODS, SAMPLES, Likeness, SamplingMethod
from mitl.settings import Settings
from mitl.stages.proposing.crisscross_counts import RatingCounts


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """The pairs that phase 2 follows from, with their ratings that count."""

    pairs: pd.DataFrame
    """``pair``, ``first``, ``second``, ``method`` of ``SAMPLES``, each order once; ``n`` ratings, mean ``score``."""
    enough: int
    """Ratings that a pair should have."""

    @classmethod
    def of(cls, ratings: pd.DataFrame, samples: pd.DataFrame, enough: int) -> Ratings:
        """From ``RATINGS`` of one environment and the ``SAMPLES`` that phase 2 follows from.

        Which ratings count, `mitl.judgements.similarity` says; a score is their plain mean, as in CxC.
        """
        scores = aggregate(counting(ratings)).scores.set_index("pair")
        orders = samples[["pair", "first", "second", "method"]].drop_duplicates(ignore_index=True)
        n = orders["pair"].map(scores["n_ratings"]).fillna(0).astype("int64")
        return cls(orders.assign(n=n, score=orders["pair"].map(scores["score"])), enough)

    @property
    def missing(self) -> int:
        """Pairs with too few ratings."""
        return int((self._distinct["n"] < self.enough).sum())

    @property
    def has_some(self) -> bool:
        """Whether anything was rated."""
        return bool((self.pairs["n"] > 0).any())

    @property
    def tasks_missing(self) -> list[Likeness]:
        """What is still to be rated."""
        short = self._distinct[self._distinct["n"] < self.enough]
        return [method.task for place, method in enumerate(METHODS) if (short["method"] == place).any()]

    def rated(self, method: SamplingMethod) -> pd.DataFrame:
        """The rated pairs of a way of sampling, in each order in which they were sampled: ``RATED`` of their items."""
        rows = self.pairs[(self.pairs["method"] == METHODS.index(method)) & (self.pairs["n"] > 0)]
        return frame(RATED, {name: rows[name].to_numpy() for name in RATED})

    def counts(self) -> dict[str, RatingCounts]:
        """For machines: by sampling method."""
        counts: dict[str, RatingCounts] = {}
        for place, method in enumerate(METHODS):
            n = self._distinct.loc[self._distinct["method"] == place, "n"]
            if len(n):
                tally = n.clip(upper=self.enough).value_counts().sort_index()
                counts[method.value] = {
                    "pairs": len(n),
                    "complete": int((n >= self.enough).sum()),
                    "by_ratings": {str(ratings): int(pairs) for ratings, pairs in tally.items()},
                }
        return counts

    def table(self) -> Table:
        """For people: how many pairs have how many ratings."""
        ratings = range(self.enough + 1)
        heads = tuple(f"{n} or more" if n == self.enough else str(n) for n in ratings)
        return Table(
            "pairs of phase 1 by ratings that count",
            ("task", "sampled by", "pairs", *heads),
            tuple(
                (
                    SamplingMethod(name).task.upper(),
                    name,
                    of["pairs"],
                    *(of["by_ratings"].get(str(n), 0) for n in ratings),
                )
                for name, of in self.counts().items()
            ),
        )

    def words(self) -> str:
        """The same in one line."""
        return "; ".join(
            f"of {of['pairs']:,} {SamplingMethod(name).task.upper()} pairs "
            + ", ".join(
                f"{pairs:,} have {n}{' or more' if int(n) == self.enough else ''} of {self.enough}"
                for n, pairs in of["by_ratings"].items()
            )
            for name, of in self.counts().items()
        )

    @property
    def _distinct(self) -> pd.DataFrame:
        """Each pair once, in whichever orders it was sampled."""
        return self.pairs.drop_duplicates(["pair", "method"])


FOLDER = "crisscross"
"""Within ``runs``."""
_KEY = ["task", "first", "second", "method", "encoder"]


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """What phase 1 sampled under one configuration, as a file."""

    path: Path

    @classmethod
    def of(cls, settings: Settings, config: object) -> KeptSamples:
        """Named by the hash of the configuration, a JSON value."""
        text = json.dumps(config, sort_keys=True)
        return cls(settings.runs / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.parquet")

    def read(self) -> pd.DataFrame | None:
        """``SAMPLES`` without ``pair``; None where there are none, or where the file cannot be read any more."""
        try:
            stored = pd.read_parquet(self.path)
            return frame(SAMPLES, {name: stored[name] for name in SAMPLES if name != "pair"})
        except (OSError, ValueError, KeyError):
            return None

    def write(self, samples: pd.DataFrame) -> None:
        """Keep them; RetrievalError where the disk is full."""
        with one_clear_line(self.path, "run the command again when there is room"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path) as sink:
                samples.astype({"encoder": "str"}).to_parquet(sink, index=False)


def new_rows(sampled: pd.DataFrame, stored: pd.DataFrame, groups: CaptionGroups) -> pd.DataFrame:
    """The rows that are not stored; an image whose co-captions were drawn before, with another seed, keeps its pairs.

    Args:
        sampled, stored: ``SAMPLES``, the first without ``pair``.
    """
    known = set(_keys(stored))
    is_there = np.array([key in known for key in _keys(sampled)], np.bool_)
    co_captions = METHODS.index(SamplingMethod.C2C_COCAPTION)
    drawn = stored.loc[stored["method"] == co_captions, "first"]
    images = groups.image_of[np.isin(groups.captions, drawn)]
    is_done = np.isin(sampled["first"], groups.captions[np.isin(groups.image_of, images)])
    return sampled[~is_there & ~((sampled["method"] == co_captions).to_numpy() & is_done)]


def _keys(samples: pd.DataFrame) -> Sequence[tuple[object, ...]]:
    return list(zip(*(samples[name].tolist() for name in _KEY), strict=True))
