"""The whole loop on the command line in an empty folder: what `--json` says, and that a second run does nothing."""

from __future__ import annotations

from collections import defaultdict
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from cli_kit import ok, use_file_annotators
from PIL import Image
from similarity_kit import sample_pairs
from snapshot_kit import assert_as_recorded

from mitl.cli.reference import COUNTS, PATHS
from mitl.settings import load

pytestmark = pytest.mark.slow

PROPOSE = ("propose", "--image-queries", "6", "--caption-queries", "8")
INIT = ("init", "--dataset", "scenes", "--n-images", "40")
ANSWERS = ("keep", "wrong", "meaningless")
STUDY = ("--queries", "6", "--top-k", "3")
ENDS = [
    word
    for end in ("complete", "no-consent", "nothing-left")
    for word in (f"--{end}-url", f"https://panel.example/{end}", f"--{end}-code", end.upper())
]

CRISSCROSS = "propose", "--scheme", "crisscross", "--text-encoder", "words", "--image-encoder", "none"


class Walk:
    """Every object that `--json` printed, by command, in order."""

    def __init__(self) -> None:
        self.said: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.calls: list[dict[str, Any]] = []

    def __call__(self, *words: str) -> dict[str, Any]:
        found = ok(*words, "--json").json
        self.said[found["command"]].append(found)
        self.calls.append(found)
        return found


@pytest.fixture(scope="module")
def walk(tmp_path_factory) -> Walk:
    """One walk through the loop: with careless workers first, so that something waits for a person."""
    mitl = Walk()
    with chdir(tmp_path_factory.mktemp("project")):
        mitl(*INIT)
        mitl(*INIT)
        use_file_annotators(Path())
        mitl(*PROPOSE)
        mitl(*PROPOSE)
        mitl("propose", "--estimate", "--annotator", "clip", "--hardware", "h200")
        mitl("annotators")
        mitl("publish", "--sandbox", "--dry-run")
        mitl("publish", "--sandbox")
        mitl("publish", "--sandbox")
        mitl("status")
        mitl("simulate", "--workers", "random")
        mitl("harvest")
        mitl("harvest", "--reparse")
        _review(mitl)
        for _ in range(6):
            mitl("publish", "--sandbox")
            mitl("simulate")
            mitl("harvest")
            if mitl("review", "settle")["status"] == "nothing_to_do":
                break
        for words in (
            ("publish", "--sandbox"),
            ("publish", "--sandbox", "--reconcile"),
            ("hits", "list"),
            ("simulate",),
            ("harvest",),
            ("review",),
            ("review", "settle"),
            ("harvest", "--watch"),
            ("hits", "expire", "--all"),
            ("hits", "delete", "--all"),
            ("pay", "--csv", "pay.csv"),
            ("pay", "check"),
            ("pay", "top-up", "--floor", "30"),
            ("review", "originals"),
            ("review", "originals", "export", "--out", "lists.csv"),
            ("build-dataset", "--out", "release"),
            ("build-dataset", "--out", "release"),
            ("build-dataset", "--out", "strict", "--strict"),
            ("compare", "strict", "release", "--differences", "differences.csv"),
            *(2 * (("evaluate", "--release", "release", "--csv", "scores.csv", "--latex", "scores.tex"),)),
            *(2 * (("analyse", "--csv", "tables", "--plots", "drawings"),)),
            ("report",),
            ("report",),
            *(("report", "--methods", file) for file in ("methods.tex", "-")),
            ("status",),
            ("workers", "--csv", "workers.csv"),
            ("workers", "--by-hits"),
            *(2 * (("crowd", "invite", "--sandbox"),)),
            ("crowd", "invitations"),
            *(2 * (("crowd", "revoke", "1"),)),
            ("crowd", "invite", "--revoke", "2"),
            ("crowd", "keys"),
            *(2 * (("crowd", "keys", "--sandbox", "--export", "requester.ini"),)),
            ("crowd", "operator"),
            ("completion", "bash"),
            *(2 * (("crowd", "budget", "--set", "12.50"),)),
            ("crowd", "budget"),
            ("crowd", "payments", "--sandbox"),
            *(2 * (CRISSCROSS,)),
            CRISSCROSS[:3],
            ("rate", "publish", "--sandbox", "--task", "sis", "--dry-run"),
            ("rate", "publish", "--sandbox", "--task", "sis", "--limit", "9"),
            ("simulate",),
            ("harvest",),
            ("workers",),
            ("rate", "scores", "--csv", "likeness.csv"),
            *(2 * (("rate", "release", "--out", "ratings"),)),
            ("db", "current"),
            ("db", "upgrade"),
        ):
            mitl(*words)
    with chdir(tmp_path_factory.mktemp("past")):
        Path("pairs.csv").write_text(
            "image_id,caption_id,caption,url\n1,11,a dog,https://h/1\n2,21,a cat,https://h/2\n"
        )
        Path("mturk_parsed.csv").write_text(
            "model,ranking,score,cid,iid,annotation,shortcoming,shortcoming2\npvse,1,0.5,21,1,4,,\n"
        )
        mitl("init", "--dataset", "table", "--captions", "pairs.csv")
        mitl("harvest", "--from", "mturk_parsed.csv")
    return mitl


def _review(mitl: Walk) -> None:
    """Look at the queue, decide about one submission, once more, and settle the rest."""
    assert mitl("review")["counts"]["queued"] > 0
    shown = ok("review").out.splitlines()[2].split()[0]
    mitl("review", "show", shown)
    mitl("review", "drop", shown)
    mitl("review", "drop", shown)
    mitl("review", "settle")


@pytest.fixture(scope="module")
def aside(tmp_path_factory) -> Walk:
    """The commands beside the loop: a preference study, every decision of a person, panels, dumps."""
    mitl = Walk()
    folder = tmp_path_factory.mktemp("aside")
    with chdir(folder):
        mitl(*INIT)
        use_file_annotators(Path())
        mitl(*PROPOSE)
        mitl("publish", "--sandbox", "--assignments", "2")
        mitl("simulate", "--workers", "random")
        mitl("harvest")
        decisions = (
            ("approve",),
            ("exclude",),
            ("reject", "--reason", "these answers are plainly at random"),
        )
        queue = [line.split()[0] for line in ok("review").out.splitlines()[2:5]]
        for (decision, *options), number in zip(decisions, queue, strict=True):
            mitl("review", decision, number, *options)
        worker = mitl("workers")["counts"]["rows"][0]["worker"]
        Path("training").mkdir()
        Image.new("RGB", (64, 64)).save("training/grey.png")
        sample_pairs(load(Path()))
        for words in (
            ("review", "reverse", queue[-1], "--use"),
            *(("review", "originals", answer, str(n)) for n, answer in enumerate(ANSWERS, 1)),
            ("review", "duplicates", "training"),
            (
                "pay",
                "compensate",
                worker,
                "--sandbox",
                "--amount",
                "0.40",
                "--reason",
                "Your page did not load.",
            ),
            ("hits", "extend", "b1", "--assignments", "3"),
            ("prefer", "publish", "--sandbox", "--dry-run", *STUDY),
            ("prefer", "publish", "--sandbox", *STUDY),
            ("simulate",),
            ("harvest",),
            ("prefer", "scores", "--csv", "systems.csv"),
            ("rate", "publish", "--sandbox", "--task", "sts", "--dry-run"),
            ("rate", "publish", "--sandbox", "--task", "sts"),
            ("crowd", "study", "--sandbox", "--title", "Pictures", "--consent", "I take part."),
            ("crowd", "panel", "add", "--sandbox", "--profile", "prolific", "--slug", "pairs", *ENDS),
            ("crowd", "panel", "list"),
            ("crowd", "panel", "visits", "pairs"),
            ("crowd", "panel", "close", "pairs"),
            ("crowd", "panel", "forget", "--sandbox", "--all"),
            ("db", "backup", "dump"),
            ("db", "verify"),
            ("db", "verify", "dump"),
            ("db", "restore", "dump", "--replace"),
            ("annotators", "verify", "near"),
        ):
            mitl(*words)
    return mitl


def test_json_is_as_recorded(walk):
    """What the loop prints with `--json` changes on purpose only: keys, their order, figures."""
    assert_as_recorded("loop", walk.calls)


def test_json_beside_the_loop_is_as_recorded(aside):
    """The same of studies, decisions, panels and dumps."""
    assert_as_recorded("aside", aside.calls)


@pytest.mark.parametrize(
    "command",
    [
        "init",
        "propose",
        "publish",
        "simulate",
        "harvest",
        "review",
        "review drop",
        "review settle",
        "build-dataset",
        "evaluate",
        "analyse",
        "report",
        "crowd budget",
        "crowd revoke",
        "db upgrade",
    ],
)
def test_the_second_run_says_that_there_is_nothing_to_do(walk, command):
    """What a command has done it does not do again, and it says so with exit status 0."""
    statuses = [found["status"] for found in walk.said[command]]

    assert "nothing_to_do" in statuses
    if command != "db upgrade":
        assert statuses[0] == "done"


def test_every_command_prints_the_keys_that_its_reference_names(walk):
    """The reference lists exactly the keys of `counts` and `paths` that commands print."""
    for command, found in walk.said.items():
        counts = {key for one in found for key in one["counts"]}
        paths = {key for one in found for key in one["paths"]}
        assert (command, counts) == (command, set(COUNTS[command]))
        assert (command, paths) == (command, set(PATHS.get(command, {})))


def test_nothing_goes_wrong_on_the_way(walk):
    """No command of the walk warns or fails, and each ends done or with nothing to do."""
    found = [one for said in walk.said.values() for one in said]

    assert {one["status"] for one in found} == {"done", "nothing_to_do"}
    # `mitl pay` finds the times odd that scripted workers claim; a release of ratings tells what is not rated.
    # `mitl crowd invite` finds no server that runs.
    warns = "pay", "rate release", "crowd invite"
    assert [
        one["warnings"] for one in found if one["warnings"] and not one["command"].startswith(warns)
    ] == []
    assert {one["error"] for one in found} == {None}


def test_the_walk_leaves_nothing_open(walk):
    """At its end every pair is judged, all work is paid, and no money is held."""
    counts = walk.said["status"][-1]["counts"]

    assert counts["pairs"] == counts["pairs_judged"] > 0
    assert counts["pairs_open"] == counts["queued"] == counts["held_cents"] == 0
    assert counts["paid_cents"] == walk.said["crowd payments"][-1]["counts"]["owed_cents"] > 0
