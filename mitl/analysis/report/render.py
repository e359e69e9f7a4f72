"""The report: one HTML file that needs nothing else, made from a ``ReportInput`` alone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mitl.analysis.report import formats, plots, tables, views
from mitl.analysis.report.inputs import ReportInput
from mitl.analysis.report.pictures import picture_uris
from mitl.records import Direction, RationaleKind

if TYPE_CHECKING:
    from jinja2 import Environment as Jinja

PAGES = Path(__file__).parent / "pages"

MAX_BYTES = 4_000_000

SECTIONS = (
    ("funnel", "Funnel", "From pairs to positives"),
    ("proposals", "Proposals", "Proposals by annotator"),
    ("answers", "Answers", "Answers by annotator and rank"),
    ("workers", "Workers", "Controls and workers"),
    ("money", "Money", "Money and time"),
    ("truth", "Truth", "Against the known truth"),
    ("multiplicity", "Positives", "Positives per query"),
    ("evaluation", "Evaluation", "Evaluation"),
    ("rationale", "Rationale", "Why descriptions fall short"),
    ("examples", "Examples", "Examples"),
    ("provenance", "Provenance", "How it was made"),
)
"""(id, word in the navigation, heading); each has a page part of its id under ``pages/sections``."""


def render_report(data: ReportInput, *, max_bytes: int = MAX_BYTES) -> str:
    """The report as HTML; the same data and pictures give the same bytes.

    Pictures are made smaller, then left out, until the page in UTF-8 is at most ``max_bytes``; everything
    else is shown whatever its size.
    """
    page = _environment().get_template("report.html.j2")
    context = _context(data)
    bare = page.render(**context, pictures={})
    uses = views.picture_uses(data.examples)
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
    for name in ("count", "percent", "points", "money", "duration", "words"):
        environment.filters[name] = getattr(formats, name)
    environment.globals.update(times=formats.times, wage=tables.hourly_wage_cents, Direction=Direction)
    return environment


def _context(data: ReportInput) -> dict[str, Any]:
    from markupsafe import Markup

    order = [annotator.name for annotator in data.annotators]
    steps = tables.funnel_steps(data.funnel)
    answers = tables.answer_shares(data.answers, order=order)
    crowd = data.crowd
    figures = {
        "funnel": plots.funnel_svg(steps),
        "answers": plots.answers_svg(answers),
        "workers": plots.workers_svg(crowd.workers if crowd else ()),
        "truth": plots.truth_svg(data.truth) if data.truth else "",
        "multiplicity": plots.multiplicity_svg(data.multiplicity),
    }
    return {
        "data": data,
        "sections": SECTIONS,
        # Our own files and matplotlib's escaped text; nothing else is let through unescaped.
        "style": Markup((PAGES / "report.css").read_text(encoding="utf-8")),  # noqa: S704
        "script": Markup((PAGES / "report.js").read_text(encoding="utf-8")),  # noqa: S704
        "figures": {name: Markup(svg) for name, svg in figures.items()},  # noqa: S704
        "steps": steps,
        "labels": tables.LABELS,
        "answers": answers,
        "answers_by_direction": [
            (direction, table)
            for direction in Direction
            if (table := tables.answer_shares(data.answers, order=order, direction=direction)).annotators
        ],
        "shortcomings": tables.rationale_shares(data.rationale, RationaleKind.SHORTCOMING, order=order),
        "concepts": tables.rationale_shares(data.rationale, RationaleKind.CONCEPT, order=order),
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
        "examples": [views.example_view(query) for query in data.examples],
    }
