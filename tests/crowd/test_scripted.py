"""Scripted workers over HTTP, against the real crowd server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from process_kit import free_port

from mitl.crowd.answers import parse_answers
from mitl.crowd.populations import CHARACTERS, PlayedHit, answer_hit
from mitl.crowd.scripted import ScriptedWork, ScriptedWorker, run_workers
from mitl.crowd.worker_session import WorkerSession, fill_form
from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.datasets.scenes.truth import Truth
from mitl.db.engine import make_engine
from mitl.errors import CrowdError, EndpointError, UsageError
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import load_template
from mitl.protocol.pages import parse_page
from mitl.records import Environment, Label, Outcome, PlaceAnswer, Shortcoming
from mitl.records.questions import RATIONALE

TRUTHS = {place: Truth(list(Label)[place % 4], (Shortcoming.NOT_IN_IMAGE,)) for place in range(1, 6)}


class Crowd:
    """A running crowd server with a requester's client."""

    def __init__(self, engine: Any, url: str) -> None:
        self.engine, self.url = engine, url
        access, secret = admin.keys(engine)[Environment.SANDBOX]
        self.client = boto3.client(
            "mturk",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id=access,
            aws_secret_access_key=secret,
        )

    def post(
        self, count: int, *, template: str = "pairs-plain", title: str = "Pairs", places: int = 5
    ) -> list[str]:
        """Post HITs; return their ids."""
        pairs = [PagePair(place, "/i/a.jpg", f"Description {place}.") for place in range(1, places + 1)]
        question = question_xml(render_page(load_template(template), pairs))
        return [
            self.client.create_hit(
                Title=title,
                Description="Look.",
                Reward="0.50",
                MaxAssignments=1,
                LifetimeInSeconds=3600,
                AssignmentDurationInSeconds=600,
                Question=question,
            )["HIT"]["HITId"]
            for _ in range(count)
        ]

    def workers(self, *characters: str) -> list[ScriptedWorker]:
        """An invited worker for each character."""
        made = admin.invite(self.engine, Environment.SANDBOX, len(characters))
        return [
            ScriptedWorker(self.url + invitation.path, character, f"w{number}")
            for number, (invitation, character) in enumerate(zip(made, characters, strict=True), start=1)
        ]

    def answers(self, hit: str, *, rationale: bool = False) -> list[PlaceAnswer]:
        """The one assignment's answers, which must be clean."""
        (assignment,) = self.client.list_assignments_for_hit(HITId=hit)["Assignments"]
        parsed = parse_answers(assignment["Answer"], places=TRUTHS, questions=RATIONALE if rationale else ())
        assert parsed.findings == ()
        return list(parsed.answers)

    def answered(self, hits: list[str]) -> list[str]:
        return [hit for hit in hits if self.client.list_assignments_for_hit(HITId=hit)["NumResults"]]


@contextmanager
def running(folder: Path) -> Iterator[Crowd]:
    engine = make_engine(f"sqlite:///{folder / 'crowd.db'}")
    with RunningServer(create_app(engine)) as server:
        yield Crowd(engine, server.url)
    engine.dispose()


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with running(tmp_path) as crowd:
        yield crowd


def expected(
    character: str, worker: str, key: str, *, rationale: bool = False, seed: int = 7
) -> list[PlaceAnswer]:
    return answer_hit(PlayedHit(CHARACTERS[character], seed, worker, key), TRUTHS, rationale=rationale)


@pytest.mark.parametrize("template", ["pairs-plain", "pairs-rationale"])
def test_answers_travel_through_form_and_api_unchanged(crowd, template):
    """What the character decided is what the requester reads back, reasons included, with nothing odd."""
    hits = crowd.post(3, template=template)
    rationale = load_template(template).rationale
    steps: list[int] = []

    @contextmanager
    def progress(label, total):
        steps.append(total)
        yield steps.append

    result = run_workers(
        crowd.workers("hasty"), ScriptedWork(lambda hit: TRUTHS, seed=7), expected=3, progress=progress
    )

    assert (result.submitted, result.skipped, result.by_character) == (3, 0, {"hasty": 3})
    assert steps == [3, 1, 1, 1]
    for hit in hits:
        assert crowd.answers(hit, rationale=rationale) == expected("hasty", "w1", hit, rationale=rationale)


def test_workers_take_turns_up_to_their_limit(crowd):
    """Round robin: the work is spread, nobody exceeds the limit, and what is left stays open."""
    hits = crowd.post(8)

    result = run_workers(
        crowd.workers("careful", "random", "careful"),
        ScriptedWork(lambda hit: TRUTHS, seed=0, hits_per_worker=2),
    )

    assert result.by_worker == {"w1": 2, "w2": 2, "w3": 2}
    assert result.by_character == {"careful": 4, "random": 2}
    assert len(crowd.answered(hits)) == 6


def test_a_second_run_gives_the_same_answers_under_stable_keys(tmp_path):
    """Two servers give other HIT ids; with the HITs' own names the answers are equal, one by one."""
    rounds = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with running(tmp_path / name) as crowd:
            keys = {hit: f"hit-{number}" for number, hit in enumerate(crowd.post(4))}
            workers = crowd.workers("hasty", "random")
            run_workers(workers, ScriptedWork(lambda hit: TRUTHS, seed=7, key_of=keys.__getitem__))
            rounds.append([crowd.answers(hit) for hit in keys])

    assert rounds[0] == rounds[1]
    assert rounds[0] == [expected(("hasty", "random")[n % 2], f"w{n % 2 + 1}", f"hit-{n}") for n in range(4)]


def test_no_more_hits_than_asked_for(crowd):
    """A maximum over all workers; running again goes on with the rest."""
    hits = crowd.post(5)
    workers = crowd.workers("careful", "careful")

    first = run_workers(workers, ScriptedWork(lambda hit: TRUTHS, seed=0, max_hits=3))
    second = run_workers(crowd.workers("careful"), ScriptedWork(lambda hit: TRUTHS, seed=0))

    assert (first.submitted, second.submitted, len(crowd.answered(hits))) == (3, 2, 5)
    assert run_workers(crowd.workers("careful"), ScriptedWork(lambda hit: TRUTHS, seed=0)).submitted == 0


def test_hits_of_other_projects_are_given_back(crowd):
    """A HIT that the caller knows nothing about is returned unanswered, and the rest of the work goes on."""
    foreign, own = crowd.post(1, title="Other people's"), crowd.post(2, title="Ours")

    result = run_workers(
        crowd.workers("careful"), ScriptedWork(lambda hit: TRUTHS if hit in own else None, seed=0)
    )

    assert (result.submitted, result.skipped) == (2, 1)
    assert crowd.answered(foreign) == []
    assert crowd.client.get_hit(HITId=foreign[0])["HIT"]["NumberOfAssignmentsAvailable"] == 1


def test_a_hit_whose_truth_cannot_be_had_is_given_back(crowd):
    """Others can take it at once, not only after its deadline."""
    [hit] = crowd.post(1)

    def refuse(hit_id):
        raise UsageError("no truth here")

    with pytest.raises(UsageError, match="no truth here"):
        run_workers(crowd.workers("careful"), ScriptedWork(refuse, seed=7))

    run_workers(crowd.workers("careful"), ScriptedWork(lambda hit_id: TRUTHS, seed=7))
    assert crowd.answered([hit]) == [hit]


def test_an_unknown_invitation_is_one_line(crowd):
    """The server's refusal, with what was asked of it; the token is not repeated in full text elsewhere."""
    worker = ScriptedWorker(crowd.url + "/w/join/nonsense", "careful", "w1")

    with pytest.raises(CrowdError, match="/w/join/nonsense answered 4"):
        run_workers([worker], ScriptedWork(lambda hit: TRUTHS, seed=0))


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        ("7", 7),
        ("86400", 60),
        ("Sun, 29 Nov 2026 09:00:09 GMT", 9),
        ("Mon, 30 Nov 2026 09:00:00 GMT", 60),
        ("Sun, 29 Nov 2026 08:00:00 -0000", 1),
        ("Sun, 29 Nov 2026 08:00:00 GMT", 1),
        ("soon", 1),
        (None, 1),
    ],
)
def test_who_comes_too_often_waits_as_asked(monkeypatch, caplog, wait, seconds):
    """A proxy before the server may name a date, by the server's clock, or nothing that tells; or ask for a day."""
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    now = {"Date": "Sun, 29 Nov 2026 09:00:00 GMT"}
    early = httpx.Response(429, headers=now if wait is None else now | {"Retry-After": wait})
    replies = [httpx.Response(200, html="<p>welcome</p>"), early]

    WorkerSession.join("http://crowd.example/w/join/a", httpx.MockTransport(lambda request: replies.pop()))

    assert waited == [seconds] and not replies
    assert ("crowd.example asks a worker to come later; tried again in 60 s" in caplog.text) == (
        seconds == 60
    )


def test_no_server_is_one_line():
    """Nothing answers: the error says what to check."""
    worker = ScriptedWorker(f"http://127.0.0.1:{free_port()}/w/join/x", "careful", "w1")

    with pytest.raises(EndpointError, match=r"got no answer: .*; is the crowd server running"):
        run_workers([worker], ScriptedWork(lambda hit: TRUTHS, seed=0))


def test_an_unknown_character_is_refused_before_anything_is_sent():
    """The known ones are named."""
    with pytest.raises(CrowdError, match="'lazy'; known: careful, hasty, yes-sayer, random"):
        run_workers(
            [ScriptedWorker("http://127.0.0.1:1/w/join/x", "lazy", "w1")],
            ScriptedWork(lambda hit: TRUTHS, seed=0),
        )


def test_a_page_with_other_places_than_known_is_refused(crowd):
    """Answers are never put at places that the page does not ask for."""
    crowd.post(1, places=4)

    with pytest.raises(
        CrowdError, match=r"asks for places \[1, 2, 3, 4\], but pairs are at \[1, 2, 3, 4, 5\]"
    ):
        run_workers(crowd.workers("careful"), ScriptedWork(lambda hit: TRUTHS, seed=0))


def test_a_form_without_a_needed_choice_is_refused():
    """An answer that the form cannot express is not silently left out."""
    html = render_page(load_template("pairs-plain"), [PagePair(1, "/i/a.jpg", "A cat.")])
    form = parse_page(html.replace("value=weak_no", "value=rather_not")).forms[0]

    with pytest.raises(CrowdError, match="no choice 'weak_no' for p01_label"):
        fill_form(form, [PlaceAnswer(1, Outcome.ANSWERED, Label.WEAK_NO)], "A1")


def test_a_filled_form_sends_what_a_browser_sends():
    """Chosen radios, the assignment, empty times as they are; nothing for what is not ticked."""
    html = render_page(load_template("pairs-plain"), [PagePair(1, "/i/a.jpg", "A cat.")])
    form = parse_page(html).forms[0]

    assert fill_form(form, [PlaceAnswer(1, Outcome.SKIPPED, None)], "A1") == [
        ("assignmentId", "A1"),
        ("p01_outcome", "skipped"),
        ("p01_ms", ""),
    ]


def test_a_list_of_several_choices_is_filled_like_checkboxes():
    """Each option with a value can be sent; a list that is off, or takes one choice alone, is no such list."""
    html = """<form method=post><select name=p01_concept multiple><option value=age>Age<option value=color selected>C
    </select><select name=off multiple disabled><option value=1>1</select><select name=one><option value=2>2</select>
    <input name=p01_text></form>"""
    form = parse_page(html).forms[0]

    assert [(control.name, control.value, control.checked) for control in form.controls] == [
        ("p01_concept", "age", False),
        ("p01_concept", "color", True),
        ("p01_text", "", False),
    ]
    assert form.sent() == [("p01_concept", "color"), ("p01_text", "")]
