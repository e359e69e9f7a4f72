"""What people said of the pairs of phase 1, as far as they were asked."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from mitl.judgements.similarity import aggregate, counting
from mitl.proposals.crisscross import RATED
from mitl.records import Table
from mitl.records.frames import frame
from mitl.records.similarity import METHODS, Likeness, SamplingMethod
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
