"""Figures as they are printed: digits that tell models apart, LaTeX that compiles to what it says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from mitl.stages.evaluating.figures import Figure, ModelDifference, keep_scores, kept_scores
from mitl.stages.evaluating.tables import comparison_table, escape_tex, score_tables, to_latex


def figure(metric, value, low, high):
    return Figure("release", "a_b", "i2t", metric, value, low, high, 100)


def difference(metric, value, low, high):
    return ModelDifference("release", "b", "a", "i2t", metric, value, low, high, 0.002, 100)


@pytest.mark.parametrize(
    ("metric", "cell"),
    [
        ("R@1", "12.35 (11.1–13.6)"),
        ("Kendall tau-b", "0.123 (0.111–0.136)"),
    ],
)
def test_shares_are_in_percent_and_correlations_have_three_digits(metric, cell):
    """Two digits of tau would show most models as equal."""
    (table,) = score_tables([figure(metric, 0.12346, 0.1111, 0.1361)])

    assert table.rows[0][-1] == cell


def test_a_set_without_intervals_does_not_promise_them():
    one = figure("R@1", 0.5, 0.4, 0.6)
    tables = score_tables([one, replace(one, positives="small", low=None, high=None)])

    assert [("intervals" in table.title) for table in tables] == [True, False]


@pytest.mark.parametrize(
    ("metric", "cell"),
    [
        ("R@1", "-0.32 (-0.58 to -0.04)"),
        ("Kendall tau-b", "-0.003 (-0.006 to -0.000)"),
        ("median rank", "-0.00 (-0.01 to -0.00)"),
    ],
)
def test_the_ends_of_a_difference_have_as_many_digits_as_it(metric, cell):
    """So that an interval beside 0 is not shown as one around it."""
    (table,) = comparison_table([difference(metric, -0.0032, -0.0058, -0.0004)])

    assert table.rows[0][4] == cell


def test_no_p_is_shown_as_zero():
    """Of 10,000 samples it is 0.0001 at the least."""
    (table,) = comparison_table([replace(difference("R@1", 0.3, 0.2, 0.4), p_value=1 / 10_001)])

    assert table.rows[0][5] == "<0.001"


def test_latex_escapes_what_it_would_read_otherwise():
    """Signs of comparison are other characters in LaTeX's first font encoding."""
    assert escape_tex("PMRP zeta=0 R<=50") == r"PMRP zeta=0 R$\leq$50"
    assert escape_tex(r"a_b & 5% <c> {d} \e^~#$") == (
        r"a\_b \& 5\% \textless{}c\textgreater{} \{d\} \textbackslash{}e\textasciicircum{}\textasciitilde{}\#\$"
    )


def test_a_latex_table_has_a_column_for_each_metric_and_its_interval():
    """The rule below a direction spans its metrics."""
    text = to_latex([figure("R@1", 0.5, 0.4, 0.6), figure("Kendall tau-b", 0.25, 0.2, 0.3)])

    assert r"\begin{tabular}{lrr}" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"a\_b & 50.0 {\scriptsize [40.0, 60.0]} & 0.250 {\scriptsize [0.200, 0.300]} \\" in text


def test_scores_of_commands_at_work_beside_each_other_are_all_kept(tmp_path):
    names = [f"set {number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for name in names:
            pool.submit(keep_scores, tmp_path, {name: {"near": {"i2t": {"R@1": 0.5}}}}, {}, of_all=True)

    assert sorted({score.positives for score in kept_scores(tmp_path)}) == sorted(names)


def test_the_unit_of_a_metric_is_said_once_of_both_directions():
    """The comment above a tabular lists what is not in percent."""
    way = figure("median rank", 3.0, 2.0, 4.0)
    text = to_latex([way, replace(way, direction="t2i")])

    assert text.startswith("% release, in percent but median rank, with 95 % intervals\n")
