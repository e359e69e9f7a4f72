"""`mitl publish` on the command line: bad input is one line, and the options do what the help says."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import chdir

import pytest
from cli_kit import fails, ok, use_file_annotators
from publish_kit import proposed


@pytest.fixture
def project(tmp_path):
    """A project with proposals, in the current folder."""
    proposed(tmp_path / "p")
    with chdir(tmp_path / "p"):
        yield tmp_path / "p"


def hits_here():
    """HITs in any state."""
    return sum(ok("status", "--sandbox", "--json").json["counts"]["hits"].values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--reward", "1.234"), "'1.234' is not an amount of dollars"),
        (("--reward", "0,20"), "'0,20' is not an amount of dollars; write it as 1.00, with a point before"),
        (("--reward", "12,34,567"), "'12,34,567' is not an amount of dollars"),
        (("--limit", "2.5"), "'2.5' is not a whole number"),
        (("--overlap", "0,05"), "'0,05' is not a number, with a point before decimals"),
        (("--assignments", "0"), "0 is not in the range 1<=x<=100"),
        (("--assignments", "101"), "101 is not in the range"),
        (("--pilot", "0"), "'--pilot'"),
        (("--probe-images", "-1"), "'--probe-images'"),
        (("--pilot", "2", "--overlap", "0.1"), "--overlap does not go with --pilot"),
        (("--out", "out"), "add --dry-run"),
        (("--reconcile", "--pilot", "2"), "--reconcile posts nothing, so --pilot could not be followed"),
        (("--reconcile", "--dry-run"), "--dry-run could not be followed"),
        (("--dry-run", "--to", "mitl.toml"), "mitl.toml is not a folder"),
        (("--dry-run", "--to", "."), "holds something else than a dry run"),
    ],
)
def test_what_cannot_be_meant_is_one_line(words, said, project):
    """Exit status 2, a line that names the option, nothing stored."""
    assert said in fails(2, "publish", "--sandbox", *words)
    assert hits_here() == 0


def test_a_balance_that_is_too_small_is_one_line(project):
    """The bill, the balance and how to raise it; nothing is planned, and then the same bill is posted."""
    ok("crowd", "budget", "--set", "0.50")
    message = fails(1, "publish", "--live", "--limit", "18", "--yes-total", "1")
    assert (
        "the bill is $1.00, but the balance is $0.50; raise the budget with `mitl crowd budget --set`"
        in message
    )

    ok("crowd", "budget", "--set", "1")
    posted = ok("publish", "--live", "--limit", "18", "--yes-total", "1", "--json").json

    assert posted["counts"]["hits_posted"] == 1
    assert posted["counts"]["balance_cents"] == 0


def test_a_ceiling_in_the_settings_holds(project):
    """[crowd] ceiling_cents is the project's own limit, fees and bonuses together."""
    with (project / "mitl.toml").open("a") as config:
        config.write("\n[crowd]\nceiling_cents = 150\n")
    ok("publish", "--sandbox", "--limit", "18")

    message = fails(1, "publish", "--sandbox", "--limit", "36")

    assert "$1.00 of the ceiling of $1.50 on sandbox are spent or promised" in message
    assert "raise ceiling_cents" in message


def test_a_dry_run_names_its_folder(project):
    """The path is in --json, and the bill on the screen is the one in the folder."""
    shown = ok("publish", "--sandbox", "--dry-run", "--out", "look").out
    found = ok("publish", "--sandbox", "--dry-run", "--to", "look", "--json").json

    assert found["paths"]["dry_run"] == str(project / "look") or found["paths"]["dry_run"] == "look"
    bill = (project / "look" / "bill.txt").read_text("utf-8").splitlines()
    assert [line.split("http")[0] for line in shown.splitlines()[: len(bill)]] == [
        line.split("http")[0] for line in bill
    ]
    requests = sorted((project / "look" / "requests").iterdir())
    assert found["counts"]["requests"] == len(requests)
    assert json.loads(requests[-1].read_text("utf-8"))["MaxAssignments"] == 1
    assert hits_here() == 0


def test_reconcile_alone_posts_nothing(project):
    """It compares, says so, and leaves what is open alone."""
    ok("publish", "--sandbox", "--limit", "18")

    found = ok("publish", "--sandbox", "--reconcile", "--json").json

    assert found["status"] == "nothing_to_do"
    assert hits_here() == 1


def test_a_pilot_is_announced_and_what_comes_then(project):
    """The bill calls it a pilot, the next step is to harvest, and the rest has to wait."""
    shown = ok("publish", "--sandbox", "--pilot", "1").out

    assert "· pilot ·" in shown.splitlines()[0]
    assert "posted 1 / 1 HIT as pilot b1" in shown
    assert "prices the rest by the pilot's times" in shown
    assert "pilot b1 of template 'pairs-plain' is out" in fails(2, "publish", "--sandbox")
    assert (
        ok("publish", "--sandbox", "--no-wait-for-pilot", "--limit", "18", "--json").json["counts"][
            "hits_posted"
        ]
        == 1
    )


def test_what_makes_rankings_again_that_a_backup_left_out_is_told(project):
    """As many queries, as deep, by the same annotators; other queries would be other work."""
    shutil.rmtree("runs")

    said = fails(1, "publish", "--sandbox")

    assert re.search(
        r"as for run \w{16}, .*: its queries \(\d+ of i2t and \d+ of t2i\), depth \d+, top \d+, \S+", said
    )


def test_a_gallery_smaller_than_the_depth_still_has_controls(tmp_path, monkeypatch):
    """Where the rankings list every pair, negative controls are of those that nothing proposed."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "6")
    use_file_annotators(tmp_path)
    ok("propose", "--top-k", "2")
    assert "mitl status" in ok("init", "--dataset", "scenes", "--n-images", "6").out

    ok("publish", "--sandbox")

    with sqlite3.connect("mitl.db") as database:
        controls = "SELECT pair_id FROM hit_item WHERE role = 'gold_negative'"
        assert database.execute(controls).fetchone()
        proposed = f"SELECT count(*) FROM proposal WHERE pair_id IN ({controls})"
        assert database.execute(proposed).fetchone() == (0,)
    database.close()
