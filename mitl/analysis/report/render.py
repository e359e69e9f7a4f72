"""The report: one HTML file that needs nothing else, made from a ``ReportInput`` alone.

It begins with a few sentences, each with the section that tells more.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mitl.analysis import answer_tables
from mitl.analysis.report import figure as fig
from mitl.analysis.report import machine_plots, plots, views
from mitl.analysis.report.inputs import DisputeKind, ReportInput, Section
from mitl.analysis.report.views import multiplicity_rows, picture_uris
from mitl.core import formats
from mitl.core.formats import count, money, percent, percent_at_most
from mitl.records import Direction, several
from mitl.records.forms import IMAGES, SetForm, of_form
from mitl.resources import page_templates

if TYPE_CHECKING:
    from jinja2 import Environment as Jinja
    from markupsafe import Markup

PAGES = Path(__file__).parent / "pages"

MAX_BYTES = 4_000_000

MOST_WORKERS = 200
"""Rows of the table of workers, the busiest first: a table that nobody reads only makes the page slow."""
OPEN_EXAMPLES = 3
"""Example queries of each direction that stand open; the others wait behind a line."""

SECTIONS = (
    Section("funnel", "Funnel", "From pairs to positives", "Pairs"),
    Section("proposals", "Proposals", "Proposals by annotator", "Pairs"),
    Section("answers", "Answers", "Answers by annotator and rank", "Pairs"),
    Section("rationale", "Reasons", "Why descriptions fall short", "Pairs"),
    Section("workers", "Workers", "Controls and workers", "People"),
    Section("money", "Money", "Money and time", "People"),
    Section("multiplicity", "Per query", "Positives per query", "Positives"),
    Section("truth", "Truth", "Against the known truth", "Positives"),
    Section("reliability", "Reliability", "How far the probabilities can be trusted", "Positives"),
    Section("evaluation", "Scores", "Scores of the machines", "Machines"),
    Section("diversity", "Diversity", "How differently the machines rank", "Machines"),
    Section("bias", "Bias", "How the choice of machines bends the scores", "Machines"),
    Section("examples", "Examples", "Queries with their positives", "To look at"),
    Section("disputes", "Disagreements", "Disagreements worth a look", "To look at"),
    Section("provenance", "Rebuild", "How to rebuild it", "Again"),
)
"""The sections with a page part of their own, the file of their id under ``pages/sections``, in the page's order."""


def render_report(data: ReportInput, *, max_bytes: int = MAX_BYTES) -> str:
    """The report as HTML; the same data and pictures give the same bytes.

    Pictures are made smaller, then left out, until the page in UTF-8 is at most ``max_bytes``; everything
    else is shown whatever its size.
    """
    page = _environment(data.form).get_template("report.html.j2")
    context = _context(data)
    bare = page.render(**context, pictures={})
    uses = views.picture_uses(data)
    if not uses:
        return bare
    pictures = picture_uris(uses, budget_bytes=max(0, max_bytes - len(bare.encode()) - 100 * len(uses)))
    return page.render(**context, pictures={str(path): uri for path, uri in pictures.items()})


@cache
def _environment(form: SetForm) -> Jinja:
    from jinja2.ext import Extension
    from jinja2.lexer import Token, TokenStream

    class FormWords(Extension):
        """The templates' own words of the form's items; what is filled in stays as it is."""

        def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
            """The same tokens with other texts."""
            for token in stream:
                if token.type in ("data", "string"):
                    said = of_form(token.value, form)
                    for image_way, way in zip(IMAGES.ways, form.ways, strict=True):
                        said = said.replace(f"({image_way})", f"({way})")
                    token = Token(token.lineno, token.type, said)
                yield token

    environment = page_templates(PAGES, extensions=[] if form is IMAGES else [FormWords])
    for name in ("count", "percent", "points", "money", "duration", "words", "decimals"):
        environment.filters[name] = getattr(formats, name)
    environment.filters["coded"] = _coded
    environment.globals.update(
        times=formats.times,
        several=several,
        shaded=views.shaded,
        by_frame=views.by_frame,
        tags=views.tags,
        said_of=views.said_of,
        FRAMES=views.FRAMES,
        DISPUTES=views.DISPUTES,
        Direction=Direction,
    )
    return environment


def _coded(text: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    from markupsafe import Markup, escape

    # Escaped first: nothing of the text itself can open a tag.
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704


def _context(data: ReportInput) -> dict[str, Any]:
    from markupsafe import Markup

    order = [annotator.name for annotator in data.annotators]
    answers = answer_tables.answer_shares(data.answers, order=order)
    by_direction = [
        (way, answer_tables.answer_shares(data.answers, order=order, direction=way)) for way in Direction
    ]
    return {
        "data": data,
        "groups": _groups(data),
        "findings": findings(data),
        # Our own files and matplotlib's escaped text; nothing else is let through unescaped.
        "style": Markup((PAGES / "report.css").read_text(encoding="utf-8")),  # noqa: S704
        "script": Markup((PAGES / "report.js").read_text(encoding="utf-8")),  # noqa: S704
        "figures": {name: Markup(svg) for name, svg in _figures(data, answers).items()},  # noqa: S704
        "analyses": {analysis.section.id: analysis for analysis in data.analyses},
        "steps": views.funnel_steps(data.funnel),
        "labels": answer_tables.LABELS,
        "answers": answers,
        "answers_by_direction": [(way, table) for way, table in by_direction if table.annotators],
        "reasons": [
            (question.title, answer_tables.rationale_shares(data.rationale, question, order=order))
            for question in data.questions
            if question.choices
        ],
        "evaluation": views.evaluation_tables(data.evaluation),
        "undrawn": list(dict.fromkeys(score.positives for score in data.evaluation))[plots.MOST_SETS :],
        "multiplicity": views.multiplicity_rows(data.multiplicity),
        "histograms": [
            (
                entry.direction,
                *(views.histogram(side, tail=plots.TAIL) for side in (entry.before, entry.after)),
            )
            for entry in data.multiplicity
        ],
        "truth_rows": views.truth_rows(data.truth),
        "machines": data.machines,
        "examples": [
            (direction, [query for query in data.examples if query.direction is direction])
            for direction in Direction
        ],
        "most_workers": MOST_WORKERS,
        "open_examples": OPEN_EXAMPLES,
    }


def _groups(data: ReportInput) -> dict[str, list[Section]]:
    """The sections by their group; those of analyses that bring their own at its end.

    Where no pair is asked, those on pairs would all be empty and are left out.
    """
    kept = {"workers", "money", "provenance", *(["evaluation"] if data.evaluation or data.preference else [])}
    usual = [section for section in SECTIONS if data.asks_pairs or section.id in kept]
    more = [analysis.section for analysis in data.analyses if data.asks_pairs or not analysis.why_not]
    groups: dict[str, list[Section]] = {}
    for section in (*usual, *more):
        groups.setdefault(section.group, []).append(section)
    return groups


def _figures(data: ReportInput, answers: answer_tables.AnswerShares) -> dict[str, str]:
    with fig.style():
        return {
            "funnel": plots.funnel_svg(views.funnel_steps(data.funnel)),
            "answers": plots.answers_svg(answers),
            "workers": plots.workers_svg(data.crowd.workers if data.crowd else ()),
            "truth": plots.truth_svg(data.truth) if data.truth else "",
            "multiplicity": plots.multiplicity_svg(data.multiplicity, data.form),
            "reliability": plots.reliability_svg(data.reliability),
            "scores": plots.scores_svg(data.evaluation, data.form),
            "ranks": machine_plots.ranks_svg(data.evaluation, data.form),
            "bias": machine_plots.bias_svg(data.machines.bias, data.form),
            "truth_bias": machine_plots.truth_bias_svg(data.machines.bias, data.form),
            # An analysis may call a drawing as the page calls one of its own.
            **{
                f"{analysis.section.id}/{name}": draw()
                for analysis in data.analyses
                for name, draw in analysis.drawings.items()
            },
        }


_MATCHES = {Direction.I2T: ("An image query", "captions"), Direction.T2I: ("A caption query", "images")}


@dataclass(frozen=True, slots=True)
class Highlight:
    """One sentence."""

    text: str
    section: str
    """Id of the section that it sums up."""


def findings(data: ReportInput) -> tuple[Highlight, ...]:
    """What a reader in a hurry should take along, as far as it is known."""
    return (
        *_positives(data),
        *_missing(data),
        *(
            Highlight(analysis.highlight, analysis.section.id)
            for analysis in data.analyses
            if analysis.highlight
        ),
        *_originals(data),
        *_people(data),
        *_money(data),
        *_machines(data),
    )


def _positives(data: ReportInput) -> Iterator[Highlight]:
    rows = multiplicity_rows(data.multiplicity)
    parts = [
        f"{_MATCHES[row.direction][0]} has {row.means[1]} matching {_MATCHES[row.direction][1]} on average "
        f"instead of {row.means[0]}"
        for row in rows
    ]
    if parts:
        text = ", ".join([parts[0], *(part[0].lower() + part[1:] for part in parts[1:])]) + "."
        coverage = [
            f"{count(entry.answered)} of {count(entry.candidates)} candidate pairs of "
            f"{count(len(entry.after))} of {count(entry.queries)} {plots.QUERIES[entry.direction]}"
            for entry in data.multiplicity
            if data.funnel.usable and not entry.complete
        ]
        if coverage:
            text += f" So far: answered are {' and '.join(coverage)}; queries without an answer do not count."
        yield Highlight(of_form(text, data.form), "multiplicity")


def _missing(data: ReportInput) -> Iterator[Highlight]:
    """Chao's bound; a bound of nothing says nothing."""
    bounds = {way: bound for way, bound in data.completeness.items() if bound.missing_whole}
    if bounds:
        missing = " and ".join(
            of_form(f"{count(b.missing_whole)} of {plots.QUERIES[way]}", data.form)
            for way, b in bounds.items()
        )
        recall = " and ".join(percent_at_most(bound.at_most) for bound in bounds.values())
        yield Highlight(
            f"Matches that no annotator proposed: at least {missing} (Chao's bound), so the recall of what they "
            f"proposed is at most {recall}.",
            "completeness",
        )


def _originals(data: ReportInput) -> Iterator[Highlight]:
    for dispute in data.disputes:
        if dispute.kind is DisputeKind.ORIGINAL and dispute.total:
            yield Highlight(
                f"People refused {count(dispute.total)} of the {count(dispute.of)} original pairs that they "
                "judged.",
                "disputes",
            )


def _people(data: ReportInput) -> Iterator[Highlight]:
    crowd = data.crowd
    if crowd is None or crowd.gold is None:
        return
    seen = crowd.gold.positive_seen + crowd.gold.negative_seen
    right = crowd.gold.positive_right + crowd.gold.negative_right
    if not seen:
        return
    text = f"Workers answered {percent(right / seen)} of {several(seen, 'hidden control')} as expected"
    shared = crowd.agreement
    if shared is not None and shared.has_interval and shared.alpha.alpha is not None:
        alpha = f"α = {shared.alpha.alpha:.2f}"
        text += f"; on the {count(shared.pairs)} pairs that several answered, their agreement is {alpha}"
    elif shared is not None and not shared.pairs:
        text += "; no pair was asked of two people, so their agreement is not known"
    yield Highlight(text + ".", "workers")


def _money(data: ReportInput) -> Iterator[Highlight]:
    paid = data.money
    if paid is None:
        return
    spent = paid.paid_cents
    if not spent or not data.funnel.positive:
        return
    text = f"{money(spent)} were paid"
    if paid.cents_a_positive is not None:
        text += f"; HITs of pairs cost {money(round(paid.cents_a_positive))} for each positive pair"
    if paid.median_hourly_cents is not None:
        text += f"; an hour of work brought {money(paid.median_hourly_cents)} in the median"
    yield Highlight(text + ".", "money")


def _machines(data: ReportInput) -> Iterator[Highlight]:
    """Whether the order of the machines is another one on the release; by mAP@R, the mean of both directions.

    Of those that are scored wherever any is.
    """
    value = {
        (score.annotator, score.positives, score.direction): score.value
        for score in data.evaluation
        if score.metric == "mAP@R" and score.positives in ("original", "release")
    }
    columns = {(positives, way) for _, positives, way in value}
    names = [
        name for name in {name for name, *_ in value} if all((name, *column) in value for column in columns)
    ]
    if len(names) < 2 or len({positives for positives, _ in columns}) < 2:
        return
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for (name, positives, _), score in value.items():
        totals[name, positives] += score
    before, after = (
        max(names, key=lambda name: (totals[name, positives], totals[name, others], name))
        for positives, others in (("original", "release"), ("release", "original"))
    )
    taught = any(score.annotator == after and score.taught_by for score in data.evaluation)
    caveat = f"; {after} was trained on answers of this release" if taught else ""
    if before == after:
        yield Highlight(f"{after} ranks best by mAP@R, before and after{caveat}.", "evaluation")
    else:
        yield Highlight(
            f"By mAP@R {after} ranks best on the release, {before} on the original annotation{caveat}.",
            "evaluation",
        )
