"""The report's plots as inline SVG; each takes plain numbers and returns ``""`` where there are none.

Importing this does not import matplotlib; drawing does.
"""

from __future__ import annotations

from mitl.analysis.report.plots.answers import answers_svg
from mitl.analysis.report.plots.funnel import funnel_svg
from mitl.analysis.report.plots.multiplicity import TAIL, multiplicity_svg
from mitl.analysis.report.plots.reliability import reliability_svg
from mitl.analysis.report.plots.scores import scores_svg
from mitl.analysis.report.plots.truth import truth_svg
from mitl.analysis.report.plots.workers import workers_svg

__all__ = [
    "TAIL",
    "answers_svg",
    "funnel_svg",
    "multiplicity_svg",
    "reliability_svg",
    "scores_svg",
    "truth_svg",
    "workers_svg",
]
