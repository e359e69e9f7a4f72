"""The table of workers, the paper's Table B.1, and what they are made of."""

from __future__ import annotations

import csv

import pytest
from cli_kit import ok
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples
from world_kit import copy_of

from mitl.analysis.answer_tables import EDGES, Workload, by_workload, together
from mitl.cli.reference import COUNTS
from mitl.desk.app import make_desk
from mitl.stages.reviewing.workers import workers

pytest_plugins = ("desk_fixtures",)

TABLE_B1 = (
    ("1", 599, 599, 459, 76.6),
    ("1 < and ≤ 5", 254, 681, 535, 78.6),
    ("5 < and ≤ 10", 61, 475, 374, 78.7),
    ("10 < and ≤ 15", 23, 297, 216, 72.7),
    ("15 < and ≤ 25", 21, 411, 285, 69.3),
    ("25 <", 12, 506, 293, 57.9),
)
"""HITs a worker, workers, submitted, approved, approve ratio in percent, as the paper prints them."""


def spread(total: int, parts: int) -> list[int]:
    """As even as whole numbers allow."""
    return [total // parts + (place < total % parts) for place in range(parts)]


def test_the_papers_table_is_reproduced():
    """Workers who did as much as the paper's give its six rows, its 970 workers, 2,969 HITs and 3.06 HITs a worker."""
    crowd = []
    for _, count, submitted, approved, _ in TABLE_B1:
        crowd += [
            Workload(*one) for one in zip(spread(submitted, count), spread(approved, count), strict=True)
        ]

    bins = by_workload(reversed(crowd))

    assert [
        (one.text, one.workers, one.submitted, one.approved, round(100 * one.ratio, 1)) for one in bins
    ] == list(TABLE_B1)
    whole = together(bins)
    assert (whole.workers, whole.submitted, whole.submitted - whole.approved) == (970, 2969, 807)
    assert round(whole.submitted / whole.workers, 2) == 3.06


@settings(max_examples=examples(15))
@given(st.lists(st.integers(0, 40).flatmap(lambda n: st.builds(Workload, st.just(n), st.integers(0, n)))))
def test_every_worker_with_a_submission_stands_in_one_bin(crowd):
    """Nobody is lost or counted twice, and each bin holds those of its bounds."""
    bins = by_workload(crowd)
    working = [one for one in crowd if one.submitted]

    assert len(bins) == len(EDGES) + 1
    for one in bins:
        inside = [
            w for w in working if one.above < w.submitted and (one.most is None or w.submitted <= one.most)
        ]
        assert (one.workers, one.submitted) == (len(inside), sum(w.submitted for w in inside))
        assert one.ratio is None if not inside else 0 <= one.ratio <= 1
    assert together(bins).workers == len(working)


def test_the_table_and_the_desk_say_the_same(reviewed):
    """Row by row: the gold record with its interval, speed, the longest run, variety, agreement, earnings."""
    desk = make_desk(reviewed, None, port=0)
    try:
        with desk.reading() as session:
            people = {one.worker: one for one in desk.crowd(session, desk.frame(session)).workers}
    finally:
        desk.sender.close()

    rows = workers(reviewed).counts["rows"]

    assert [row["worker"] for row in rows] == sorted(
        people, key=lambda name: (-people[name].submissions, name)
    )
    for row in rows:
        one = people[row["worker"]]
        assert (row["golds"], row["golds_passed"]) == (one.record.golds, one.record.passes)
        assert (row["pass_rate_low"], row["pass_rate_high"]) == (round(one.low, 4), round(one.high, 4))
        assert row["longest_run"] == one.run.length and row["entropy_bits"] == round(one.entropy, 4)
        assert row["speed"] == round(one.speed, 4) and row["earned_cents"] == one.earned_cents
        assert row["standing"] == one.standing and not row["capped"]


@pytest.mark.parametrize("extra", [(), ("--by-hits",)], ids=["workers", "by hits"])
def test_the_rows_are_printed_documented_and_written_as_csv(reviewed, tmp_path, extra):
    """The same rows with `--json` and `--csv`, with the keys that docs/cli.md lists."""
    project = copy_of(reviewed, tmp_path / "p").project
    file = tmp_path / "out" / "rows.csv"

    found = ok("workers", *extra, "--project", project, "--json", "--csv", file).json

    rows = found["counts"]["rows"]
    assert set(found["counts"]) <= set(COUNTS["workers"])
    assert rows and all(key in COUNTS["workers"]["rows"] for row in rows for key in row)
    assert found["paths"] == {"csv": str(file)}
    with file.open(encoding="utf-8", newline="") as source:
        written = list(csv.DictReader(source))
    assert written == [
        {key: "" if value is None else str(value) for key, value in row.items()} for row in rows
    ]


def test_the_tables_are_shown_to_people(reviewed, tmp_path):
    """Two tables of workers, or the paper's bins with their sum."""
    project = copy_of(reviewed, tmp_path / "p").project

    plain = ok("workers", "--project", project).out
    bins = ok("workers", "--by-hits", "--project", project).out

    assert "pass rate (90 %)" in plain and "how they go about it: evidence, no verdict" in plain
    assert "1 < and ≤ 5" in bins and "\n  all " in bins and "approve ratio" in bins


def test_nobody_has_worked_yet(tmp_path):
    """One line, status nothing to do, no file."""
    ok("init", tmp_path / "p", "--dataset", "scenes", "--n-images", "4")

    for extra in ((), ("--by-hits",)):
        outcome = ok("workers", *extra, "--project", tmp_path / "p", "--csv", tmp_path / "rows.csv")
        assert outcome.out == "nothing to show: nobody has submitted work yet\n"
    assert not (tmp_path / "rows.csv").exists()
