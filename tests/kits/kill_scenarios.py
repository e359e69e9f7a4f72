"""What is killed: commands as a person types them, each from where the one before left the project."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from books import assert_books_agree, server_rows
from kill_books import State
from kill_child import Command
from kill_stand import Project, Stand
from similarity_kit import likeness, rate, sample_pairs
from world_kit import SANDBOX, make_world, run_propose

from mitl.db.session import open_database
from mitl.db.store import answers
from mitl.records import Decision
from mitl.settings import Settings

REASON = "both control pairs were answered wrongly"
ROWS = "rows.csv"
ROW = ("AssignmentId", "WorkerId", "HITId", "AssignmentStatus", "AcceptTime", "SubmitTime", "Answer")
SOME_WRONG = "right:0.4,wrong:0.6"


@dataclass(frozen=True)
class Scenario:
    """Commands to be killed, and the project that they start from."""

    name: str
    after: str
    """The scenario from whose undisturbed end this one starts."""
    commands: Callable[[Settings], Sequence[Command]]
    first: Callable[[Project], None] = lambda project: None
    """What happens before, undisturbed: people work."""
    crowd: str = ""
    """Settings of ``[crowd]``. A ceiling is what has been spent and what the command costs, to the cent."""
    balances: bool = True
    """Whether the sandbox's books are equal on both sides afterwards: not where HITs are left to post, or a file's text
    is kept."""


def _typed(*lines: str) -> Callable[[Settings], Sequence[Command]]:
    return lambda settings: [line.split() for line in lines]


def _gift(settings: Settings) -> Sequence[Command]:
    with open_database(settings.db_url, read_only=True) as session:
        worker = answers.assignments(session, SANDBOX)[0].worker
    return [["pay", "compensate", worker, "--amount", "2.50", "--reason", "the page of a HIT did not load"]]


def _the_budget_is_just_enough(project: Project) -> None:
    project.must([["crowd", "budget", "--set", "8.00"]])


def _people_work(project: Project) -> None:
    project.must([["simulate", "--workers", SOME_WRONG, "--hits-per-worker", "1"]])


def _people_compare(project: Project) -> None:
    """Some choose at random, so that their controls fail."""
    project.must([["simulate", "--workers", SOME_WRONG]])


def _some_work_is_not_used(project: Project) -> None:
    project.must([["review", "settle"]])


def _review(
    choice: str, *more: str, place: int, at: Decision = Decision.QUEUED
) -> Callable[[Settings], Sequence[Command]]:
    """A person's choice about one of the submissions at a decision."""
    return lambda settings: [["review", choice, str(submissions(settings, at)[place]), *more]]


def _people_work_and_a_file_is_left(project: Project) -> None:
    """What people sent in lies in a file, as a script of one's own may have fetched it."""
    _people_work(project)
    query = """SELECT a.mturk_id, w.mturk_id, h.mturk_id, 'Submitted', a.accepted_at, a.submitted_at, a.answer
        FROM assignment a JOIN worker w ON w.id = a.worker_id JOIN hit h ON h.id = a.hit_id"""
    with (project.folder / ROWS).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(ROW)
        for *ids, accepted, submitted, answer in server_rows(project.settings, query):
            times = (dt.datetime.fromtimestamp(at / 1e6, dt.UTC).isoformat() for at in (accepted, submitted))
            rows.writerow([*ids, *times, answer])


def _publish_dies(project: Project) -> None:
    """All five HITs have reached the server, and the project does not know it."""
    project.run([["publish", "--sandbox"]], kill_at="after CreateHITWithHITType 5")


def submissions(settings: Settings, decision: Decision) -> list[int]:
    """The numbers of the submissions at a decision, in order of arrival."""
    with open_database(settings.db_url, read_only=True) as session:
        return [row.id for row in answers.assignments(session, SANDBOX, (decision,))]


SCENARIOS = (
    Scenario("publish", "propose", _typed("publish --sandbox --max-cost 5.00"), crowd="ceiling_cents = 500"),
    Scenario(
        "publish --pilot",
        "propose",
        _typed("publish --sandbox --pilot 3 --no-wait-for-pilot --max-cost 3.00"),
        crowd="ceiling_cents = 300",
    ),
    Scenario(
        "publish --limit",
        "propose",
        _typed(
            "publish --live --limit 40 --overlap 0.1 --assignments 2 --max-cost 8.00 --yes-total 8.00 --probe-images 0"
        ),
        first=_the_budget_is_just_enough,
        crowd="ceiling_cents = 800",
        balances=False,
    ),
    Scenario("harvest", "publish", _typed("harvest"), first=_people_work),
    Scenario("review approve", "harvest", _review("approve", place=0)),
    Scenario("review exclude", "harvest", _review("exclude", place=0)),
    Scenario("review reject", "harvest", _review("reject", "--reason", REASON, place=0)),
    Scenario("review drop", "harvest", _review("drop", place=0)),
    Scenario(
        "review reverse",
        "review reject",
        _review("reverse", place=0, at=Decision.REJECT),
    ),
    Scenario("review settle", "harvest", _typed("review settle")),
    Scenario("publish again", "review settle", _typed("publish --sandbox"), crowd="ceiling_cents = 800"),
    Scenario(
        "publish again --limit",
        "review settle",
        _typed("publish --sandbox --limit 20 --max-cost 1.00 --probe-images 0"),
        crowd="ceiling_cents = 600",
    ),
    Scenario(
        "publish --reconcile",
        "propose",
        _typed("publish --sandbox --reconcile"),
        first=_publish_dies,
        balances=False,
    ),
    Scenario(
        "harvest --from",
        "publish",
        lambda settings: [["harvest", "--from", str(settings.project / ROWS)]],
        first=_people_work_and_a_file_is_left,
        balances=False,
    ),
    Scenario(
        "harvest with a cap",
        "publish",
        _typed("harvest"),
        first=_people_work,
        crowd="max_hits_per_worker = 1",
    ),
    Scenario("hits expire", "publish", _typed("hits expire --all")),
    Scenario(
        "hits extend --assignments",
        "publish",
        _typed("hits extend b1 --assignments 2 --max-cost 5.00"),
        crowd="ceiling_cents = 1000",
    ),
    Scenario("hits extend --days", "publish", _typed("hits extend b1 --days 20")),
    Scenario("hits delete", "review settle", _typed("hits delete --all")),
    Scenario(
        "pay top-up",
        "review settle",
        _typed("pay top-up --floor 900.00 --max-cost 200.00"),
        crowd="ceiling_cents = 20500",
    ),
    Scenario(
        "prefer publish --limit",
        "propose",
        _typed("prefer publish --sandbox --queries 9 --per-hit 5 --limit 6 --max-cost 2.10 --probe-images 0"),
        crowd="ceiling_cents = 210",
    ),
    Scenario("pay compensate", "review settle", _gift, crowd="ceiling_cents = 750"),
)


OF_RANKINGS = (
    Scenario(
        "prefer publish",
        "propose",
        _typed("prefer publish --sandbox --queries 9 --per-hit 5 --max-cost 5.40"),
        crowd="ceiling_cents = 540",
    ),
    Scenario("harvest of preferences", "prefer publish", _typed("harvest"), first=_people_compare),
    Scenario(
        "prefer publish again",
        "harvest of preferences",
        _typed("prefer publish --sandbox --queries 9 --per-hit 5"),
        first=_some_work_is_not_used,
        crowd="ceiling_cents = 1000",
    ),
)
"""The same of preference studies; killed by `test_prefer_kill.py`."""


def _pairs_are_sampled(project: Project) -> None:
    sample_pairs(project.settings, n=6)


def _people_rate(project: Project) -> None:
    """One of them gives one number for everything, so that the controls fail."""
    rate(project.settings, [likeness, lambda worker, item: 3.0])


def _what_waits_is_dropped(project: Project) -> None:
    for number in submissions(project.settings, Decision.QUEUED):
        project.must([["review", "drop", str(number)]])


OF_RATINGS = (
    Scenario(
        "rate publish",
        "propose",
        _typed("rate publish --sandbox --task sts --assignments 2 --per-hit 5 --max-cost 3.90"),
        first=_pairs_are_sampled,
        crowd="ceiling_cents = 390",
    ),
    Scenario("harvest of ratings", "rate publish", _typed("harvest"), first=_people_rate),
    Scenario(
        "rate publish again",
        "harvest of ratings",
        _typed("rate publish --sandbox --task sts"),
        first=_what_waits_is_dropped,
        crowd="ceiling_cents = 1000",
    ),
)
"""The same of pairs to rate; these and the next are killed by `test_campaign_kills.py`."""


def _all_are_right(project: Project) -> None:
    project.must([["simulate", "--workers", "right"]])


def _all_take_care(project: Project) -> None:
    project.must([["simulate", "--workers", "careful"]])


_ROUND = "round next --sandbox --yes --budget 3.00 --label-error 0.3 --label-sample 8"

OF_ROUNDS = (
    Scenario("round next", "propose", _typed(_ROUND), crowd="ceiling_cents = 300"),
    Scenario("round run", "round next", _typed("round run --sandbox"), first=_all_are_right),
    Scenario(
        "round next after answers",
        "round next",
        _typed(_ROUND),
        first=_all_are_right,
        crowd="ceiling_cents = 600",
    ),
    Scenario(
        "round close", "round next", _typed("round close --sandbox"), first=_people_work, balances=False
    ),
    Scenario("round rollback", "round run", _typed("round rollback --sandbox")),
)
"""The same of rounds: opened and posted; ended; ended and followed by the next; closed; taken back."""


def _items_are_chosen(project: Project) -> None:
    listed = project.folder / "images.txt"
    listed.write_text("1\n2\n3\n4\n5\n6\n7\n8\n", encoding="utf-8")
    project.must([f"collect choose --count 7 --strategy random --items {listed}".split()])


OF_TEXTS = (
    Scenario(
        "collect publish",
        "propose",
        _typed("collect publish --sandbox"),
        first=_items_are_chosen,
        crowd="ceiling_cents = 1000",
    ),
    Scenario("harvest of texts", "collect publish", _typed("harvest"), first=_all_take_care),
    Scenario("collect publish of reviews", "harvest of texts", _typed("collect publish --sandbox")),
    Scenario("harvest of reviews", "collect publish of reviews", _typed("harvest"), first=_all_take_care),
)
"""The same of texts that people write and review."""


def named(name: str) -> Scenario:
    """The scenario of this name."""
    return next(
        scenario
        for scenario in (*SCENARIOS, *OF_RANKINGS, *OF_RATINGS, *OF_ROUNDS, *OF_TEXTS)
        if scenario.name == name
    )


class Bases:
    """Projects as they stood before each scenario, made when they are asked for."""

    def __init__(self, stand: Stand, folder: Path) -> None:
        self._stand = stand
        self._folder = folder
        self._ends: dict[str, Path] = {}
        self._states: dict[str, State] = {}
        self._points: dict[str, tuple[str, ...]] = {}

    def start(self, scenario: Scenario) -> Path:
        """The project before this scenario's commands."""
        folder = self._folder / f"before {scenario.name}"
        if not folder.exists():
            with self._stand.project(self._end(scenario.after)) as project:
                scenario.first(project)
                _configure(project.folder / "mitl.toml", scenario.crowd)
                project.keep(folder)
        return folder

    def state(self, scenario: Scenario) -> State:
        """What the databases say after the commands when nobody disturbed them."""
        self._end(scenario.name)
        return self._states[scenario.name]

    def points(self, scenario: Scenario) -> list[str]:
        """All points that the commands come by when nobody disturbs them."""
        self._end(scenario.name)
        return list(self._points[scenario.name])

    def _end(self, name: str) -> Path:
        if name not in self._ends:
            folder = self._folder / f"after {name}"
            if name == "propose":
                _propose(folder)
            else:
                scenario = named(name)
                with self._stand.project(self.start(scenario)) as project:
                    project.run(scenario.commands(project.settings), rehearsal=True)
                with self._stand.project(self.start(scenario)) as project:
                    points = project.must(scenario.commands(project.settings)).points
                    assert len(set(points)) == len(points)
                    if scenario.balances:
                        # What holds here holds in every run that ends in the same state.
                        assert_books_agree(project.settings, name)
                    self._states[name], self._points[name] = project.state(), points
                    project.keep(folder)
            self._ends[name] = folder
        return self._ends[name]


def _configure(file: Path, crowd: str) -> None:
    before, _, _ = file.read_text(encoding="utf-8").partition("\n[crowd]")
    file.write_text(f"{before}\n[crowd]\n{crowd}\n", encoding="utf-8")


def _propose(folder: Path) -> None:
    """A project whose open pairs fill five HITs, with the pictures that its pages show."""
    folder.mkdir(parents=True)
    settings = make_world(folder, n_images=12)
    run_propose(settings, image_queries=7, caption_queries=9)
    _draw_pictures(settings)


def _draw_pictures(settings: Settings) -> None:
    from mitl.campaign.pages import picture_sources
    from mitl.db.store import items
    from mitl.progress import no_progress

    with open_database(settings.db_url, read_only=True) as session:
        images = items.images(session, items.dataset(session).id, settings.project)
    picture_sources(settings, images, no_progress)
