"""One scripted worker's browser: joins by link, takes HITs, fills in and posts their forms."""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx

from mitl.core.clock import LONGEST_WAIT_S, asked_to_wait
from mitl.crowd.populations import ListTruth, PlayedHit, answer_comparisons, answer_hit
from mitl.crowd.raters import LikenessTruth, PickTruth, WriteTruth, answer_ratings, answer_texts
from mitl.datasets.scenes.truth import Truth
from mitl.errors import CrowdError, EndpointError
from mitl.protocol.pages import Form, FormControl, WorkerPage, parse_page
from mitl.records import ComparisonAnswer, PlaceAnswer
from mitl.records.collection import GivenText
from mitl.records.questions import PLAYED, RATIONALE, SHORTCOMING
from mitl.records.similarity import GivenRating

logger = logging.getLogger(__name__)

_TIMEOUT_S = 60.0
_MOST_TRIES = 20
"""Of one request, where the server says that it comes too early."""
_NO_WORDS = re.compile(r"<(style|title)\b.*?</\1>|<[^>]*>", re.DOTALL)
_FIELD = re.compile(r"p(\d\d)_([a-z]+)", re.ASCII)
_MAIN = {"label", "prefer", "score", "pick", "outcome", "ms"}

Truths = (
    Mapping[int, Truth]
    | Mapping[int, ListTruth]
    | Mapping[int, LikenessTruth]
    | Mapping[int, WriteTruth | PickTruth]
)
"""What is true at each place of a HIT: of pairs, of two lists, of two items that are rated, or of what is collected."""
Answers = Sequence[PlaceAnswer] | Sequence[ComparisonAnswer] | Sequence[GivenRating] | Sequence[GivenText]
_ANSWERS: Mapping[type, Callable[[PlayedHit, Any], Answers]] = {
    ListTruth: answer_comparisons,
    LikenessTruth: answer_ratings,
    WriteTruth: answer_texts,
    PickTruth: answer_texts,
}
"""Who answers, by what is true of the places, but for pairs."""


@dataclass(frozen=True, slots=True)
class AcceptedHit:
    """An accepted HIT: the page around it, and the frame's address with what its query says."""

    hit_id: str
    assignment_id: str
    submit_to: str
    parent_url: str
    parent: WorkerPage
    frame_url: str


class WorkerSession:
    """A worker's browser: pages come with cookies, answers go out from a frame of opaque origin."""

    def __init__(self, link: str, transport: httpx.BaseTransport) -> None:
        self._home = _origin(link) + "/w"
        self._client = httpx.Client(transport=transport, follow_redirects=True, timeout=_TIMEOUT_S)
        self._sender = httpx.Client(transport=transport, headers={"Origin": "null"}, timeout=_TIMEOUT_S)
        self._exhausted: set[tuple[tuple[str, str], ...]] = set()
        self._refused: set[str] = set()
        self._listing: WorkerPage | None = None
        self._at_hand: list[str] = []
        self._submitted = 0

    @classmethod
    def join(cls, link: str, transport: httpx.BaseTransport) -> WorkerSession:
        """Open an invitation link in a browser of its own, over connections that may be shared.

        Raises:
            CrowdError: the server refuses the link.
            EndpointError: nothing answers there.
        """
        session = cls(link, transport)
        session._get(link)
        return session

    def next_task(self) -> AcceptedHit | None:
        """The HIT at hand from earlier, or a newly accepted one; None when no listed group has one left."""
        if self._listing is None:
            self._listing = self._look()
        while self._at_hand:
            task = self._open(self._get(self._at_hand.pop(0)))
            if task is not None and task.assignment_id not in self._refused:
                return task
        for form in self._listing.forms:
            fields = tuple(form.sent())
            if urlsplit(form.action).path.rstrip("/") != "/w/accept" or fields in self._exhausted:
                continue
            task = self._open(self._post(self._client, urljoin(self._home, form.action), list(fields)))
            if task is not None and task.assignment_id not in self._refused:
                return task
            self._exhausted.add(fields)
        return None

    def give_back_all(self) -> int:
        """Return every HIT at hand from earlier, unanswered; how many there were."""
        self._look()
        tasks = [task for url in self._at_hand if (task := self._open(self._get(url))) is not None]
        for task in tasks:
            self.give_back(task)
        return len(tasks)

    def _look(self) -> WorkerPage:
        response = self._agree(self._get(self._home))
        listing = parse_page(response.text)
        links = dict.fromkeys(urljoin(str(response.url), link) for link in listing.links)
        self._at_hand = [url for url in links if self._is_task(url)]
        return listing

    def give_back(self, task: AcceptedHit) -> None:
        """Return a HIT unanswered, if the page around it offers that; it is not taken up again."""
        self._refused.add(task.assignment_id)
        for form in task.parent.forms:
            if urlsplit(form.action).path.endswith("/return"):
                self._post(self._client, urljoin(task.parent_url, form.action), form.sent())

    def submit(self, task: AcceptedHit, played: PlayedHit, truths: Truths) -> None:
        """Fill in the HIT's form as this worker and post it.

        Raises:
            CrowdError: the page's form does not ask for exactly these places, or the server refuses the
                answers.
        """
        form = _answer_form(parse_page(self._get(task.frame_url).text), task)
        kinds = {match[2] for control in form.controls if (match := _FIELD.fullmatch(control.name))}
        played = replace(played, turn=self._submitted)
        of_pairs = partial(answer_hit, rationale=SHORTCOMING.name in kinds)
        answers = _ANSWERS.get(type(next(iter(truths.values()), None)), of_pairs)(played, truths)
        asked = kinds - _MAIN - {question.name for question in RATIONALE}
        if asked:
            rng, hasty = played.rng("questions"), played.character.name != "careful"
            answers = [_with_further(given, form, asked, rng, hasty=hasty) for given in answers]
        fields = fill_form(form, answers, task.assignment_id)
        target = urljoin(task.frame_url, form.action)
        if _origin(target) != _origin(task.frame_url):
            # The page's script would have taken the address from the query, as on MTurk.
            target = task.submit_to.rstrip("/") + "/mturk/externalSubmit"
        if _origin(target) != _origin(task.frame_url):
            raise CrowdError(
                f"HIT {task.hit_id} wants its answers sent to another server, {_origin(target)!r}"
            )
        self._post(self._sender, target, fields)
        self._submitted += 1

    def _agree(self, response: httpx.Response) -> httpx.Response:
        """The page asked for, once the study's page before it is answered as a person who takes part does."""
        for form in parse_page(response.text).forms:
            if urlsplit(form.action).path != "/w/study":
                continue
            fields = [field for field in form.sent() if field != ("answer", "no")]
            if ("answer", "yes") in fields:
                self._post(self._client, urljoin(self._home, form.action), fields)
                return self._get(self._home)
        return response

    def _is_task(self, url: str) -> bool:
        return _origin(url) == _origin(self._home) and urlsplit(url).path.startswith("/w/a/")

    def _open(self, response: httpx.Response) -> AcceptedHit | None:
        """The task on a page around a HIT; None where the server led back to the list."""
        parent_url = str(response.url)
        if not self._is_task(parent_url):
            return None
        parent = parse_page(response.text)
        if not parent.frames:
            raise CrowdError(f"the page {parent_url} shows no HIT")
        frame_url = urljoin(parent_url, parent.frames[0])
        query = parse_qs(urlsplit(frame_url).query)
        try:
            hit_id, assignment_id, submit_to = (
                query[name][0] for name in ("hitId", "assignmentId", "turkSubmitTo")
            )
        except KeyError as error:
            raise CrowdError(f"the frame of {parent_url} lacks {error.args[0]} in its address") from error
        return AcceptedHit(hit_id, assignment_id, submit_to, parent_url, parent, frame_url)

    def _get(self, url: str) -> httpx.Response:
        return _checked(self._client, self._client.build_request("GET", url))

    def _post(self, client: httpx.Client, url: str, fields: list[tuple[str, str]]) -> httpx.Response:
        # Browsers say where a form was shown; servers use that against forged posts.
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if client is not self._sender:
            headers |= {"Origin": _origin(url), "Referer": self._home}
        body = urlencode(fields)
        return _checked(client, client.build_request("POST", url, content=body, headers=headers))


def fill_form(form: Form, answers: Answers, assignment_id: str) -> list[tuple[str, str]]:
    """The fields that a browser would send once a worker had given these answers.

    Raises:
        CrowdError: the form does not ask for exactly these places, or lacks a choice that an answer needs.
    """
    to_fill = _wanted(answers)
    asked = {int(match[1]) for control in form.controls if (match := _FIELD.fullmatch(control.name))}
    if asked != {answer.place for answer in answers}:
        raise CrowdError(
            f"the HIT's form asks for places {sorted(asked)}, but pairs are at {[a.place for a in answers]}"
        )

    def fill(control: FormControl) -> str | None:
        if control.name == "assignmentId":
            return assignment_id
        if control.kind in ("radio", "checkbox"):
            if control.name not in to_fill:
                return control.value if control.checked and not _FIELD.fullmatch(control.name) else None
            return control.value if control.value in to_fill[control.name] else None
        return to_fill[control.name][0] if to_fill.get(control.name) else control.value

    fields = form.sent(fill)
    lacking = {(name, value) for name, values in to_fill.items() for value in values} - set(fields)
    if lacking:
        name, value = min(lacking)
        raise CrowdError(f"the HIT's form has no choice {value!r} for {name}")
    return fields


def _with_further(
    answer: PlaceAnswer | ComparisonAnswer | GivenRating | GivenText,
    form: Form,
    asked: Collection[str],
    rng: random.Random,
    *,
    hasty: bool,
) -> Any:
    """The answer with a choice at random, or a few words, for each question of the form that is asked of it.

    A careful worker plays sounds and videos to their end, a hasty one all, most or nothing.
    """
    if not isinstance(answer, PlaceAnswer) or answer.label is None:
        return answer
    chosen = {"label": (answer.label.value,), **answer.given}
    for name in dict.fromkeys(control.name for control in form.controls):
        match = _FIELD.fullmatch(name)
        if match is None or int(match[1]) != answer.place or match[2] not in asked:
            continue
        offered = [control for control in form.controls if control.name == name]
        question, *values = offered[0].when.split() or [""]
        is_asked = not values or not set(values).isdisjoint(chosen.get(question, ()))
        if is_asked:
            if offered[0].kind in ("radio", "checkbox"):
                value = rng.choice(offered).value
            elif match[2] == PLAYED.name:
                value = rng.choice((PLAYED.values[0], *PLAYED.values[-2:])) if hasty else PLAYED.values[-1]
            else:
                value = "a scripted worker's words"
            chosen[match[2]] = (value,)
    del chosen["label"]
    return replace(answer, given=chosen)


def _wanted(answers: Answers) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for answer in answers:
        values = {
            "outcome": [answer.outcome.value],
            "ms": [str(answer.active_ms)] if answer.active_ms is not None else [],
        }
        if isinstance(answer, ComparisonAnswer):
            values["prefer"] = [answer.answer.value] if answer.answer is not None else []
            values["text"] = [answer.text] if answer.text else []
        elif isinstance(answer, GivenRating):
            values["score"] = [f"{answer.score:.2f}"] if answer.score is not None else []
            values["text"] = [answer.text] if answer.text else []
        elif isinstance(answer, GivenText):
            values["text"] = [answer.text] if answer.text else []
            values["pick"] = [] if answer.pick is None else [str(answer.pick)]
        else:
            values["label"] = [answer.label.value] if answer.label is not None else []
            values |= {name: list(chosen) for name, chosen in answer.given.items()}
        fields |= {f"p{answer.place:02d}_{kind}": filled for kind, filled in values.items()}
    return fields


def _answer_form(page: WorkerPage, task: AcceptedHit) -> Form:
    for form in page.forms:
        if form.method == "post" and any(_FIELD.fullmatch(control.name) for control in form.controls):
            return form
    raise CrowdError(f"the page of HIT {task.hit_id} has no form with the fields of pairs")


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _checked(client: httpx.Client, request: httpx.Request) -> httpx.Response:
    where = f"{request.method} {request.url.copy_with(query=None)}"
    for _ in range(_MOST_TRIES):
        try:
            response = client.send(request)
        except httpx.HTTPError as error:
            raise EndpointError(f"{where} got no answer: {error}; is the crowd server running?") from error
        if response.status_code != 429:
            break
        request = response.request  # of a chain of redirects the one that was refused: the others took effect
        wait_s = asked_to_wait(response.headers) or 1
        if wait_s == LONGEST_WAIT_S:
            logger.warning("%s asks a worker to come later; tried again in %d s", request.url.host, wait_s)
        time.sleep(wait_s)
    if response.status_code >= 400:
        told = " ".join(_NO_WORDS.sub(" ", response.text).split())[:300]
        raise CrowdError(f"{where} answered {response.status_code}: {told}")
    return response
