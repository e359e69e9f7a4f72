"""Kendall's tau between metrics over models: ECCV Caption's Table 5, files of scores, and RSUM."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from cli_kit import fails, mitl, ok
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mitl.analysis.correlations import ScoreTable, correlate, read_scores, with_rsum
from mitl.analysis.diversity import tau_b_rows, tau_b_table
from mitl.errors import MetricError

SCORES = Path(__file__).parents[1] / "data" / "eccv_tables_d2_d3.csv"
"""Tables D.2 (i2t) and D.3 (t2i) of ECCV Caption: 25 models, 11 metrics, in percent."""
PAPER = Path(__file__).resolve().parents[3] / "shared" / "papers" / "eccv_caption.md"

# Table 5 without its PMRP row and column, which do not follow from these tables.
METRICS = (
    *("COCO 1K R@1", "COCO 1K R@5", "COCO 1K R@10", "COCO 5K R@1", "COCO 5K R@5", "COCO 5K R@10"),
    *("CxC R@1", "ECCV R@1", "ECCV R-P", "ECCV mAP@R"),
)
TABLE_5 = """
- 0.87 0.86 0.89 0.97 0.92 0.89 0.72 0.39 0.47
0.87 - 0.97 0.79 0.88 0.93 0.79 0.81 0.49 0.58
0.86 0.97 - 0.77 0.86 0.91 0.77 0.79 0.49 0.57
0.89 0.79 0.77 - 0.89 0.83 1.00 0.65 0.30 0.39
0.97 0.88 0.86 0.89 - 0.95 0.89 0.75 0.41 0.50
0.92 0.93 0.91 0.83 0.95 - 0.83 0.80 0.47 0.55
0.89 0.79 0.77 1.00 0.89 0.83 - 0.65 0.30 0.39
0.72 0.81 0.79 0.65 0.75 0.80 0.65 - 0.65 0.74
0.39 0.49 0.49 0.30 0.41 0.47 0.30 0.65 - 0.90
0.47 0.58 0.57 0.39 0.50 0.55 0.39 0.74 0.90 -
"""


def test_table_5_follows_from_the_means_of_d2_and_d3():
    """Every correlation of COCO, CxC and ECCV metrics, as printed."""
    found = correlate(read_scores(SCORES))
    place = {name: found.metrics.index(name) for name in METRICS}
    ours = [
        ["-" if one == other else f"{found.tau[place[one]][place[other]]:.2f}" for other in METRICS]
        for one in METRICS
    ]

    assert len(found.models) == 25
    assert ours == [line.split() for line in TABLE_5.strip().splitlines()]


@pytest.mark.shared
def test_the_figures_are_those_of_the_paper():
    """Read off the tables in the paper's text; D.2 spells one family of models in its own way."""
    if not PAPER.is_file():
        pytest.skip("the papers are not beside this checkout")
    lines = PAPER.read_text(encoding="utf-8").splitlines()
    heading, *rows = csv.reader(io.StringIO(SCORES.read_text(encoding="utf-8")))

    found = [
        [model, direction, *cells]
        for direction, caption in (("i2t", "Table D.2:"), ("t2i", "Table D.3:"))
        for model, cells in printed_rows(lines, caption)
    ]

    assert len(heading) == 13 and found == rows


def printed_rows(lines, caption):
    """Model and figures of each row above a table's caption."""
    end = next(place for place, line in enumerate(lines) if line.startswith(caption))
    start = max(place for place in range(end) if lines[place].startswith("\tmAP@R"))
    for line in lines[start:end]:
        name, *cells = line.split("\t")
        if len(cells) == 11 and all(re.fullmatch(r"[0-9]+\.[0-9]+", cell) for cell in cells):
            yield re.sub("<sup>.*</sup>", "", name).strip().replace("infnty", "infty"), cells


def test_the_command_reads_a_file_without_a_project(tmp_path, monkeypatch):
    """And writes what it found."""
    monkeypatch.chdir(tmp_path)

    found = ok("analyse", "correlations", "--scores", SCORES, "--csv", "out", "--plots", "out", "--json").json

    tau = found["counts"]["analyses"]["correlations"]["tau"]
    assert round(tau["COCO 1K R@1"]["ECCV mAP@R"], 2) == 0.47
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "correlations.csv",
        "correlations.svg",
        "rsum.csv",
    ]
    assert "VSE infty (WSL grid)" in ok("analyse", "correlations", "--scores", SCORES).out


def test_rsum_adds_up_six_recalls():
    """Of VSE0 on COCO 5K: three of image queries, three of caption queries."""
    table = with_rsum(read_scores(SCORES))

    column = table.metrics.index("COCO 5K RSUM")
    assert table.means[table.models.index("VSE0"), column] == pytest.approx(
        24.76 + 53.82 + 67.98 + 19.78 + 46.12 + 59.87
    )
    assert "CxC RSUM" not in table.metrics and "ECCV RSUM" not in table.metrics


def test_models_of_the_same_mean_tie():
    """0.4 and 0.2 have the mean of 0.3 and 0.3, which in binary is a hair above it."""
    values = np.array([[[0.4, 0.5], [0.3, 0.6]], [[0.2, 0.5], [0.3, 0.6]]])

    (found, _), _ = correlate(ScoreTable(("a", "b"), ("R@1", "R@5"), ("i2t", "t2i"), values)).tau

    assert found is None


def test_an_rsum_of_the_files_own_stays_the_only_one():
    """Published tables have one; a second of the same name would be told apart in no file."""
    table = ScoreTable(("a", "b"), ("R@1", "R@5", "R@10", "RSUM"), ("i2t", "t2i"), np.ones((2, 2, 4)))

    assert with_rsum(table) is table


def test_one_direction_alone_has_no_rsum():
    """It would be half of one."""
    table = ScoreTable(("a", "b"), ("R@1", "R@5", "R@10"), ("i2t",), np.ones((1, 2, 3)))

    assert with_rsum(table) is table


def test_a_model_without_a_score_is_left_out_of_that_metric_alone(tmp_path):
    """Three models have both metrics and agree; the fourth would not."""
    file = tmp_path / "scores.csv"
    file.write_text("model,one,other,third\na,1,10,3\nb,2,20,2\nc,3,30,1\nd,4,,0\n")

    found = correlate(read_scores(file))

    assert found.tau[0][1] == 1 and found.tau[0][2] == -1 and len(found.models) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the heading of 'scores.csv' is nothing; it should name a column 'model' and metrics"),
        ("sep=;\nmodel;R@1\na;1\n", "tells Excel how cells are separated; delete that line"),
        ("name,R@1\na,1\n", "is 'name', 'R@1'; it should name a column 'model'"),
        ("model\na\n", "'scores.csv' holds no metric"),
        ("model,R@1,R@1\na,1,2\n", "has the column 'R@1' twice"),
        ("model,R@1,\na,1,2\n", "column 3 of 'scores.csv' has no name"),
        ("model,R@1\na,1\na,2\n", "row 3 of 'scores.csv' is a second row of model 'a'; keep one"),
        ("model,R@1\na,high\n", "'R@1' in row 2 of 'scores.csv' is 'high'; it should be a number"),
        ("model,R@1\na,nan\n", "'R@1' in row 2 of 'scores.csv' is 'nan'; it should be a number"),
        ("model,R@1\na,1,2\n", "row 2 of 'scores.csv' has 3 cells; its heading has 2"),
        ("model,direction,R@1\na,i2t,1\nb,t2i,1\n", "has no row of model 'a' in direction 't2i'"),
        ("model,R@1\na,1\n", "1 model is not a ranking of models; give the scores of two or more"),
        ("model,R@1\n", "0 models are not a ranking of models"),
        ("model,R@1\n\na,1\n\nb,high\n", "'R@1' in row 5 of 'scores.csv' is 'high'"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, monkeypatch, text, message):
    """Whatever is wrong with it, and nothing else is analysed."""
    monkeypatch.chdir(tmp_path)
    Path("scores.csv").write_text(text)

    assert message in fails(1, "analyse", "correlations", "--scores", "scores.csv")


def test_a_file_that_is_missing_or_no_text_says_so(tmp_path, monkeypatch):
    """One line each."""
    monkeypatch.chdir(tmp_path)
    Path("picture.csv").write_bytes(b"\xff\xd8\xff\xe0")

    assert "there is no file 'nope.csv'" in fails(1, "analyse", "correlations", "--scores", "nope.csv")
    assert "is not a CSV in UTF-8" in fails(1, "analyse", "correlations", "--scores", "picture.csv")
    assert mitl("analyse", "correlations", "--scores", ".").status == 2


columns = arrays(
    np.float64,
    st.tuples(st.integers(2, 4), st.integers(2, 7)),
    elements=st.one_of(st.integers(0, 4).map(float), st.just(float("nan"))),
)


@given(columns)
def test_tau_is_scipys_and_lies_between_minus_one_and_one(values):
    """With ties and gaps; symmetric, and 1 of a column with itself."""
    stats = pytest.importorskip("scipy.stats")
    table = tau_b_table(values)

    np.testing.assert_array_equal(table, table.T)
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            both = ~np.isnan(one) & ~np.isnan(other)
            expected = stats.kendalltau(one[both], other[both]).statistic if both.sum() > 1 else np.nan
            np.testing.assert_allclose(table[i, j], expected, atol=1e-12)
    known = table[~np.isnan(table)]
    assert (np.abs(known) <= 1 + 1e-12).all()


@given(columns.map(np.nan_to_num), st.randoms(use_true_random=False))
def test_tau_does_not_know_the_order_or_the_scale_of_scores(values, random):
    """Models shuffled, scores squeezed by a rising function, the other metric negated."""
    order = random.sample(range(values.shape[1]), values.shape[1])

    np.testing.assert_allclose(tau_b_table(np.exp(values)[:, order] * 7 - 3), tau_b_table(values))
    np.testing.assert_allclose(
        tau_b_table(np.stack([values[0], -values[1]]))[0, 1], -tau_b_table(values)[0, 1]
    )


@given(columns.map(np.nan_to_num), st.integers(0, 2**16))
def test_rows_and_table_agree(values, seed):
    """Both ways to the same number, over the items that are compared."""
    compared = np.random.default_rng(seed).random(values.shape[1]) < 0.8

    (found,) = tau_b_rows(values[:1], values[1:2], compared[None])

    expected = tau_b_table(values[:, compared])[0, 1] if compared.sum() > 1 else np.nan
    np.testing.assert_allclose(found, expected)


def test_fewer_than_two_models_are_refused():
    """There is nothing to order."""
    with pytest.raises(MetricError, match="two or more"):
        correlate(ScoreTable(("a",), ("R@1",), ("",), np.ones((1, 1, 1))))
