"""The plots: valid SVG, the page's colours, and no way in for hostile names."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
import pytest
from defusedxml.ElementTree import fromstring
from report_sample import HOSTILE, sample_input

from mitl.analysis.answer_tables import answer_shares
from mitl.analysis.report import machine_plots, plots
from mitl.analysis.report.inputs import EvaluationScore, FunnelCounts
from mitl.analysis.report.views import funnel_steps
from mitl.records import Direction


def drawings(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """All plots of the sample."""
    data = sample_input(folder, names=names, examples=0)
    assert data.crowd is not None
    assert data.truth is not None
    return {
        "funnel": plots.funnel_svg(funnel_steps(data.funnel)),
        "answers": plots.answers_svg(answer_shares(data.answers, order=names)),
        "truth": plots.truth_svg(data.truth),
        "multiplicity": plots.multiplicity_svg(data.multiplicity),
        "workers": plots.workers_svg(data.crowd.workers),
        "ranks": machine_plots.ranks_svg(data.evaluation),
        **{name: draw() for section in data.analyses for name, draw in section.drawings.items()},
    }


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Those of two annotators."""
    return drawings(tmp_path_factory.mktemp("drawn"), ("clip", "pvse"))


def texts(root: Element) -> list[str]:
    """Every text that a reader sees."""
    return [element.text or "" for element in root.iter() if element.tag.endswith("}text")]


def test_each_plot_is_one_svg_element_with_text_and_a_text_alternative(drawn: dict[str, str]) -> None:
    """It parses as XML, keeps text as text, and says what it shows."""
    for svg in drawn.values():
        root = fromstring(svg)

        assert root.tag.endswith("}svg")
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert len(texts(root)) > 3


def test_ids_do_not_clash_and_all_references_are_met(drawn: dict[str, str]) -> None:
    """All plots stand in one page, so that an id must be that page's only one."""
    page = "".join(drawn.values())

    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:xlink:href="|url\()#([^")]*)', page)) <= set(ids)


def test_ink_and_palette_follow_the_page(drawn: dict[str, str]) -> None:
    """No fixed black or white is left that would vanish in the dark: colours are variables or the ink."""
    for svg in drawn.values():
        outside_variables = re.sub(r"var\([^)]*\)", "", svg)

        assert "currentColor" in svg
        assert re.findall(r"#[0-9a-f]{6}\b", outside_variables) == []
        assert "<style" not in svg


def test_hostile_names_are_shown_as_they_are_and_do_nothing(tmp_path: Path) -> None:
    """Markup, formulas, our own tokens and foreign scripts in an annotator's name stay plain text."""
    names = (HOSTILE[:20], '"><script>x</script>', "$\\frac{", 'id="a" #010101', "模型 🙂", "]]>&amp;")

    for kind, svg in drawings(tmp_path, (*names, "clip")).items():
        root = fromstring(svg)

        assert not [element for element in root.iter() if element.tag.endswith("script")]
        assert "<script" not in svg
        if kind == "answers":
            assert set(names) <= set(texts(root))
        if kind in ("truth", "ranks"):
            assert all(name in (root.get("aria-label") or "") for name in names)


def test_nothing_to_draw_draws_nothing() -> None:
    """Empty inputs give an empty string, for the page to leave the figure out."""
    assert plots.funnel_svg(funnel_steps(FunnelCounts())) == ""
    assert plots.answers_svg(answer_shares([])) == ""
    assert plots.multiplicity_svg([]) == ""
    assert plots.workers_svg([]) == ""
    assert machine_plots.ranks_svg([]) == ""


def test_the_axis_of_controls_ends_at_all_of_them_and_rounds_no_label(tmp_path: Path) -> None:
    """Nobody answers 102 % of the controls, and a line at 97.5 % is not called 98 %."""
    workers = sample_input(tmp_path, names=("clip", "pvse"), examples=0).crowd.workers
    one = next(worker for worker in workers if worker.golds_seen)

    svg = plots.workers_svg([dataclasses.replace(one, golds_seen=14, golds_right=14)])

    shares = [float(share) for share in re.findall(r">([0-9.]+) %<", svg)]
    assert max(shares) == 100
    assert set(np.diff(sorted(shares)).round(6)) == {2.5}


def test_many_workers_of_one_record_cover_neither_the_legend_nor_other_records(tmp_path: Path) -> None:
    """The legend's marks stay small, and a thousand workers make a mark no larger than forty do."""
    workers = sample_input(tmp_path, names=("clip", "pvse"), examples=0).crowd.workers
    one = next(worker for worker in workers if worker.golds_seen)

    radii = [
        [float(found) for found in re.findall(r'<path id="workers-m\w+" d="M 0 ([0-9.]+)', svg)]
        for svg in (plots.workers_svg([one] * count) for count in (1, 31, 1000))
    ]

    [[small], [mark, legend], [largest, other_legend]] = radii
    assert small == legend == other_legend
    assert mark == pytest.approx(largest, rel=0.05)


def test_a_funnel_of_equal_steps_and_of_millions_can_be_drawn() -> None:
    """Linear where the bars are alike, logarithmic where they are not; a step of zero is left out."""
    alike = plots.funnel_svg(funnel_steps(FunnelCounts(distinct=3, asked=3, positive=0)))
    apart = plots.funnel_svg(funnel_steps(FunnelCounts(possible=38_185_000, positive=1)))

    assert "logarithmic" not in alike
    assert "judged positive" not in alike
    assert "logarithmic" in apart


def test_importing_the_report_loads_neither_matplotlib_nor_pillow() -> None:
    """The command line stays quick: what draws is loaded when something is drawn."""
    heavy = ("matplotlib", "PIL", "jinja2")
    code = (
        f"import sys, mitl.analysis.report.render; print([name for name in {heavy} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_ranks_are_told_before_and_after_of_who_is_scored_on_both() -> None:
    """Equal scores share a rank; who lacks one set is left out; one annotator alone has no rank to draw."""

    def score(name: str, positives: str, value: float) -> EvaluationScore:
        return EvaluationScore(name, positives, Direction.I2T, "mAP@R", value)

    scores = [
        *(score(name, "original", value) for name, value in {"a": 0.5, "b": 0.4, "c": 0.4, "x": 0.9}.items()),
        *(score(name, "release", value) for name, value in {"a": 0.2, "b": 0.3, "c": 0.1}.items()),
    ]

    assert machine_plots.ranks(scores, Direction.I2T) == {"b": (2, 1), "a": (1, 2), "c": (2, 3)}
    assert "i2t: b from 2 to 1, a from 1 to 2, c from 2 to 3" in machine_plots.ranks_svg(scores)
    assert machine_plots.ranks_svg(scores[:1] + scores[4:5]) == ""
