"""The analyses of the machine annotators as the page shows them."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.analysis.machines.records import Bias, Correlations, Diversity, LabelOrder, MachineAnalysis, Matrix


@dataclass(frozen=True, slots=True)
class Shade:
    """A number of a square table with how dark its cell is, 0 to 1; the number says it too."""

    value: float | None
    depth: float


@dataclass(frozen=True, slots=True)
class DiversityView:
    """One direction: Kendall's tau-b and the mean rank of the other's first item."""

    found: Diversity
    tau: tuple[tuple[Shade, ...], ...]
    mutual_rank: tuple[tuple[Shade, ...], ...]


@dataclass(frozen=True, slots=True)
class CorrelationView:
    """Kendall's tau-b between metrics over the models that were scored."""

    metrics: tuple[str, ...]
    models: int
    tau: tuple[tuple[Shade, ...], ...]


@dataclass(frozen=True, slots=True)
class MachineViews:
    """What the sections on diversity and bias show; empty where there is nothing."""

    diversity: tuple[DiversityView, ...]
    bias: tuple[Bias, ...]
    label_order: tuple[LabelOrder, ...]
    correlations: CorrelationView | None
    why_no_diversity: str
    why_no_bias: str


def machine_views(found: MachineAnalysis) -> MachineViews:
    """The analyses with their shades."""
    return MachineViews(
        diversity=tuple(
            DiversityView(one, _shaded(one.tau), _shaded(one.mutual_rank)) for one in found.diversity
        ),
        bias=found.bias,
        label_order=found.label_order,
        correlations=None if found.correlations is None else _correlations(found.correlations),
        why_no_diversity=found.left_out.get("diversity", ""),
        why_no_bias=found.left_out.get("bias", ""),
    )


def _correlations(found: Correlations) -> CorrelationView:
    return CorrelationView(found.metrics, len(found.models), _shaded(found.tau))


def _shaded(matrix: Matrix) -> tuple[tuple[Shade, ...], ...]:
    """Off the diagonal, from the smallest value to the largest."""
    cells = [
        value for i, row in enumerate(matrix) for j, value in enumerate(row) if i != j and value is not None
    ]
    low, high = min(cells, default=0.0), max(cells, default=1.0)
    width = high - low or 1.0
    return tuple(
        tuple(
            Shade(value, 0.0 if i == j or value is None else round((value - low) / width, 2))
            for j, value in enumerate(row)
        )
        for i, row in enumerate(matrix)
    )
