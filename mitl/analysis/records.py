"""What the analyses of machine annotators found, as frozen records; None where a number is not defined.

Scores and shares run from 0 to 1. Annotators stand in the order of the project's runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mitl.records import Direction

Cell = float | None
Row = tuple[Cell, ...]
Matrix = tuple[Row, ...]

R_AT_1 = "R@1"
R_PRECISION = "R-Precision"


@dataclass(frozen=True, slots=True)
class Diversity:
    """How alike the annotators' kept rankings of one direction are (ECCV Caption, Table A.1)."""

    direction: Direction
    annotators: tuple[str, ...]
    queries: int
    depth: int
    """Ranked items of each query that are compared."""
    tau: Matrix
    """(A, A) mean Kendall's tau-b over the items of either list; 1 on the diagonal."""
    tau_common: Matrix
    """(A, A) the same over the items of both lists; None where no query's lists share two items."""
    mutual_rank: Matrix
    """(A, A) mean rank of the row's first item by the column; depth + 1 stands for an item that is not kept."""
    beyond: Matrix
    """(A, A) share of the queries whose first item by the row the column's list does not hold."""


@dataclass(frozen=True, slots=True)
class SubsetScores:
    """The scores of all annotators under the positives that some of them proposed."""

    used: tuple[str, ...]
    scores: Row
    """(A,) in the order of the annotators."""


@dataclass(frozen=True, slots=True)
class SizeBias:
    """Mean absolute distance from the reference, averaged over all subsets of one size (Fig. E.2)."""

    size: int
    subsets: int
    total: float
    """Over all annotators: the bias index."""
    own: float
    """Over the annotators whose proposals were used: the self-bias."""
    other: Cell
    """Over the others: the non-self-bias; None where all were used."""
    shift: float
    """Mean signed distance over all annotators: positive where the scores are too high."""
    tau: Cell
    """Mean Kendall's tau-b between the scores' order of the annotators and the reference's; None if undefined."""


@dataclass(frozen=True, slots=True)
class Bias:
    """What the choice of the proposing annotators does to one metric in one direction (appendix E)."""

    direction: Direction
    metric: str
    """``R@1`` or ``R-Precision``, with graded matching: 1 for yes, 0.5 for weak yes, 0 otherwise."""
    annotators: tuple[str, ...]
    queries: int
    without_positive: int
    """Queries for which nothing was judged a match; they score 0 under every subset."""
    depth: int
    capped: int
    """Queries with more positives than ranked items; there R counts as ``depth``."""
    subsets: tuple[SubsetScores, ...]
    """Every subset, by size and then in the order of the annotators; the last is all of them."""
    by_size: tuple[SizeBias, ...]
    """Against the scores under all annotators' positives; the size of all is left out, for it is 0."""
    true_scores: Row | None = None
    """(A,) under the known truth of every pair, found or not; None where none is known, and for R-Precision where a
    query has more true matches than ranked items: cut at the depth it would be another metric, often far from it."""
    deeper: int = 0
    """Queries with more true matches than ranked items."""
    by_size_truth: tuple[SizeBias, ...] = ()
    """Against ``true_scores``, all sizes: judged positives."""
    by_size_selection: tuple[SizeBias, ...] = ()
    """Against ``true_scores``, all sizes: the same pairs with their true labels, so that no answer is wrong and what
    is left is the machines' selection alone."""

    @property
    def together(self) -> Row:
        """(A,) the scores under the positives of all annotators."""
        return self.subsets[-1].scores


@dataclass(frozen=True, slots=True)
class Correlations:
    """Kendall's tau-b between metrics over models (Table 5)."""

    metrics: tuple[str, ...]
    tau: Matrix
    """(M, M); None where a metric does not tell two models apart."""
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """How well one annotator's order of a query's judged items agrees with the graded answers."""

    annotator: str
    direction: Direction
    tau: Cell
    """Mean Kendall's tau-b over the queries for which it is defined."""
    queries: int
    undefined: int
    """Queries whose judged items all have one label, or stand all on one place."""


@dataclass(frozen=True, slots=True)
class UncertaintyBin:
    """Queries of similar uncertainty, which runs from ``low`` to ``high``."""

    low: float
    high: float
    queries: int
    positives: float
    """Mean number of positives of a query."""


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """An annotator's own uncertainty of its queries against how many positives they have (Fig. 3b)."""

    annotator: str
    direction: Direction
    measure: str
    """How an item's standard deviations become one number: ``geometric mean`` or ``root mean square``."""
    against: str
    """``judged`` or ``truth``: whose positives are counted."""
    queries: int
    tau: Cell
    spearman: Cell
    bins: tuple[UncertaintyBin, ...]
    """From the least to the most uncertain; about the same number of queries in each."""


@dataclass(frozen=True, slots=True)
class MachineAnalysis:
    """What a report shows of the machine annotators; an empty field has its reason in ``left_out``."""

    diversity: tuple[Diversity, ...] = ()
    bias: tuple[Bias, ...] = ()
    correlations: Correlations | None = None
    label_order: tuple[LabelOrder, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Field → one line that says why there is nothing."""
