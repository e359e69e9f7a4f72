"""Recall beside what was published: which figures are within the tolerance, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from annotators.published import KS, Published
from mitl.records import Direction, Table

Recalls = Mapping[Direction, tuple[float, ...]]
"""R@1, R@5 and R@10 in percent."""

_HALF_A_DIGIT = 0.005
"""Published figures are rounded to two places."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One recall in percent, with what was published of it."""

    protocol: str
    """5K, 1K, or all on data that are not COCO's."""
    direction: Direction
    k: int
    measured: float
    published: float | None

    @property
    def difference(self) -> float | None:
        """Measured less published; None where nothing was published."""
        return None if self.published is None else self.measured - self.published

    def is_within(self, tolerance: float) -> bool:
        """Whether it is at most ``tolerance`` points off, or nothing was published."""
        return self.difference is None or abs(self.difference) <= tolerance + _HALF_A_DIGIT


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures of one annotator, and the row that they are held against."""

    annotator: str
    figures: tuple[Figure, ...]
    row: Published | None

    @classmethod
    def of(cls, annotator: str, measured: Mapping[str, Recalls], row: Published | None) -> Comparison:
        """From recall by protocol."""
        return cls(annotator, tuple(_figures(measured, row)), row)

    @property
    def outside(self) -> list[Figure]:
        """The figures that are further off than they may be."""
        return [
            figure
            for figure in self.figures
            if self.row is not None and not figure.is_within(self.row.tolerance)
        ]

    def recall(self) -> dict[str, dict[str, dict[str, float]]]:
        """Protocol → direction → R@K → percent."""
        found: dict[str, dict[str, dict[str, float]]] = {}
        for figure in self.figures:
            by_direction = found.setdefault(figure.protocol, {})
            by_direction.setdefault(figure.direction.value, {})[f"R@{figure.k}"] = round(figure.measured, 4)
        return found

    def table(self, title: str) -> Table:
        """A row for each figure."""
        columns = ["gallery", "direction", "recall", "measured"]
        if self.row is not None:
            columns += ["published", "difference", f"± {self.row.tolerance}"]
        return Table(title, tuple(columns), tuple(self._cells(figure) for figure in self.figures))

    def _cells(self, figure: Figure) -> tuple[object, ...]:
        known = (figure.protocol, figure.direction.value, f"R@{figure.k}", f"{figure.measured:.2f}")
        if self.row is None:
            return known
        if figure.published is None or figure.difference is None:
            return (*known, None, None, None)
        verdict = "within" if figure.is_within(self.row.tolerance) else "outside"
        return (*known, f"{figure.published:.2f}", f"{figure.difference:+.2f}", verdict)

    @property
    def lines(self) -> tuple[str, ...]:
        """Whose figures they are held against, and how that ended."""
        if self.row is None:
            return ()
        sources = f"5K: {self.row.source}" + (f"; 1K: {self.row.one_k_source}" if self.row.one_k else "")
        found = "outside" if self.outside else "within"
        return (
            f"published for {self.row.what} ({sources})",
            f"{found} the tolerance of {self.row.tolerance} points",
        )

    @property
    def refusal(self) -> str | None:
        """One line about the figure that is furthest off; None where all are within."""
        if self.row is None or not self.outside:
            return None
        worst = max(self.outside, key=lambda figure: abs(figure.difference or 0))
        return (
            f"annotator {self.annotator!r} differs from what was published for {self.row.row!r}: {worst.protocol} "
            f"{worst.direction} R@{worst.k} is {worst.measured:.2f}, published {worst.published:.2f} ± "
            f"{self.row.tolerance}; check its weights, vocabulary and images, or name another row with --published"
        )


def _figures(measured: Mapping[str, Recalls], row: Published | None) -> Iterator[Figure]:
    known = {} if row is None else row.protocols()
    for protocol, by_direction in measured.items():
        for direction, values in by_direction.items():
            published = known.get(protocol, {}).get(direction, (None,) * len(KS))
            for k, value, other in zip(KS, values, published, strict=True):
                yield Figure(protocol, direction, k, value, other)
