"""What the report shows of the machine annotators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mitl.analysis.machines.metric_correlation import correlate
from mitl.analysis.machines.records import MachineAnalysis
from mitl.errors import MitlError
from mitl.settings import Settings
from mitl.stages.analysing.bias import bias_tables
from mitl.stages.analysing.correlations import kept_scores
from mitl.stages.analysing.diversity import diversity_tables
from mitl.stages.analysing.label_order import label_orders
from mitl.stages.analysing.material import Material
from mitl.stages.analysing.snapshot import Snapshot

T = TypeVar("T")


def analysis_for_report(settings: Settings, known: Snapshot) -> MachineAnalysis:
    """Diversity, bias, correlations and label order of a project that is read already; no network is loaded.

    What cannot be analysed is empty, and ``left_out`` says why.
    """
    material = Material(settings, snapshot=known)
    left_out: dict[str, str] = {}

    def attempt(name: str, analyse: Callable[[], T], nothing: T) -> T:
        try:
            return analyse()
        except MitlError as error:
            left_out[name] = str(error)
            return nothing

    return MachineAnalysis(
        diversity=attempt("diversity", lambda: diversity_tables(material), ()),
        bias=attempt("bias", lambda: bias_tables(material), ()),
        correlations=attempt("correlations", lambda: correlate(kept_scores(settings)), None),
        label_order=attempt("label_order", lambda: label_orders(material), ()),
        left_out=left_out,
    )
