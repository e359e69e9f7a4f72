"""The report: one HTML file that needs nothing else, made from a ``ReportInput`` alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mitl.analysis import answer_tables
from mitl.analysis.report import gallery, machines, plots, views
from mitl.analysis.report.inputs import ReportInput, tables
from mitl.analysis.report.pictures import picture_uris
from mitl.analysis.report.plots import figure as fig
from mitl.analysis.report.plots.machines import bias_svg, truth_bias_svg
from mitl.analysis.report.sections import GROUPS, SECTIONS
from mitl.analysis.report.summary import findings
from mitl.core import formats
from mitl.records import Direction, RationaleKind

if TYPE_CHECKING:
    from jinja2 import Environment as Jinja

PAGES = Path(__file__).parent / "pages"

MAX_BYTES = 4_000_000

MOST_WORKERS = 200
"""Rows of the table of workers, the busiest first: a table that nobody reads only makes the page slow."""
OPEN_EXAMPLES = 3
"""Example queries of each direction that stand open; the others wait behind a line."""


def render_report(data: ReportInput, *, max_bytes: int = MAX_BYTES) -> str:
    """The report as HTML; the same data and pictures give the same bytes.

    Pictures are made smaller, then left out, until the page in UTF-8 is at most ``max_bytes``; everything
    else is shown whatever its size.
    """
    page = _environment().get_template("report.html.j2")
    context = _context(data)
    bare = page.render(**context, pictures={})
    uses = gallery.picture_uses(data.examples, data.disputes)
    if not uses:
        return bare
    pictures = picture_uris(uses, budget_bytes=max(0, max_bytes - len(bare.encode()) - 100 * len(uses)))
    return page.render(**context, pictures={str(path): uri for path, uri in pictures.items()})


@cache
def _environment() -> Jinja:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("count", "percent", "points", "money", "duration", "words", "decimals"):
        environment.filters[name] = getattr(formats, name)
    environment.globals.update(
        times=formats.times,
        wage=tables.hourly_wage_cents,
        said_of=gallery.said_of,
        FRAMES=gallery.FRAMES,
        Direction=Direction,
    )
    return environment


def _context(data: ReportInput) -> dict[str, Any]:
    from markupsafe import Markup

    order = [annotator.name for annotator in data.annotators]
    answers = answer_tables.answer_shares(data.answers, order=order)
    return {
        "data": data,
        "groups": GROUPS,
        "sections": SECTIONS,
        "findings": findings(data),
        # Our own files and matplotlib's escaped text; nothing else is let through unescaped.
        "style": Markup((PAGES / "report.css").read_text(encoding="utf-8")),  # noqa: S704
        "script": Markup((PAGES / "report.js").read_text(encoding="utf-8")),  # noqa: S704
        "figures": {name: Markup(svg) for name, svg in _figures(data, answers).items()},  # noqa: S704
        "steps": tables.funnel_steps(data.funnel),
        "labels": answer_tables.LABELS,
        "answers": answers,
        "answers_by_direction": [
            (direction, table)
            for direction in Direction
            if (
                table := answer_tables.answer_shares(data.answers, order=order, direction=direction)
            ).annotators
        ],
        "shortcomings": answer_tables.rationale_shares(
            data.rationale, RationaleKind.SHORTCOMING, order=order
        ),
        "concepts": answer_tables.rationale_shares(data.rationale, RationaleKind.CONCEPT, order=order),
        "evaluation": views.evaluation_tables(data.evaluation),
        "multiplicity": views.multiplicity_rows(data.multiplicity),
        "histograms": [
            (
                entry.direction,
                *(tables.histogram(side, tail=plots.TAIL) for side in (entry.before, entry.after)),
            )
            for entry in data.multiplicity
        ],
        "truth_rows": views.truth_rows(data),
        "machines": machines.machine_views(data.machines),
        "examples": [
            (direction, [gallery.example_view(q) for q in data.examples if q.direction is direction])
            for direction in Direction
        ],
        "disputes": gallery.dispute_views(data.disputes),
        "most_workers": MOST_WORKERS,
        "open_examples": OPEN_EXAMPLES,
    }


def _figures(data: ReportInput, answers: answer_tables.AnswerTable) -> dict[str, str]:
    with fig.style():
        return {
            "funnel": plots.funnel_svg(tables.funnel_steps(data.funnel)),
            "answers": plots.answers_svg(answers),
            "workers": plots.workers_svg(data.crowd.workers if data.crowd else ()),
            "truth": plots.truth_svg(data.truth) if data.truth else "",
            "multiplicity": plots.multiplicity_svg(data.multiplicity),
            "reliability": plots.reliability_svg(data.reliability),
            "scores": plots.scores_svg(data.evaluation),
            "bias": bias_svg(data.machines.bias),
            "truth_bias": truth_bias_svg(data.machines.bias),
        }
