"""One submission with everything that a person needs to decide about it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.campaign.kinds import kind_of
from mitl.crowd.context import Context
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import ledger, rating_pages
from mitl.db.store.answers import StoredAssignment
from mitl.judgements.conduct import haste
from mitl.judgements.gold_records import GoldState
from mitl.records import (
    BatchKind,
    Decision,
    Environment,
    Finding,
    GoldControl,
    Judgement,
    Label,
    Outcome,
    Pair,
    PairRole,
    PartKind,
    Table,
)
from mitl.records.questions import PLAYED, RATIONALE, TEXT, Given, GoldRule
from mitl.records.results import ImageName
from mitl.records.similarity import GivenRating
from mitl.stages.reviewing.decisions import Rejection, find_submission, rejection_of

HASTE = "too_fast"


@dataclass(frozen=True, slots=True)
class SeenPair:
    """One place of the page as the worker answered it, beside what is known."""

    place: int
    image_id: int
    image: str | None
    """Where the desk shows the picture, sound or video: its own address, an https address, or None where there is
    neither."""
    caption: str
    own: bool
    """Whether the caption was written for this image, or the pair is another original positive."""
    role: PairRole
    outcome: Outcome
    label: Label | None
    passed: bool | None
    """Of a control; None where it was not answered, and for other pairs."""
    withdrawn: bool
    """A control that good workers fail; it is not held against anyone."""
    given: Given
    """What was answered besides the label."""
    seconds: float | None
    """Active on this pair."""
    others: Mapping[Label, int]
    """Other workers' answers on the same pair."""
    expected: tuple[Label, ...]
    """The answers with which a control passes; empty for other pairs."""
    texts: tuple[str, ...] = ()
    """Of a document, in place of a picture: its title, if it has one, and its text."""
    kind: PartKind = PartKind.IMAGE
    """What ``image`` is."""
    reference: str | None = None
    """Where the desk shows the image that a composed query changes."""

    @property
    def played(self) -> str:
        """How much of a sound or video was played, in words; empty where nothing was measured."""
        said = {choice.value: choice.said for choice in PLAYED.choices}
        return "".join(said.get(value, "") for value in self.given.get(PLAYED.name, ()))

    @property
    def reasons(self) -> tuple[str, ...]:
        """The choices that were made, each of a template's own questions with the question's name."""
        standard = {question.name for question in RATIONALE}
        return tuple(
            value if name in standard else f"{name}: {value}"
            for name, values in self.given.items()
            for value in values
            if name not in (TEXT.name, PLAYED.name)
        )

    @property
    def text(self) -> str:
        """In the worker's own words."""
        return "\n".join(self.given.get(TEXT.name, ()))

    @property
    def is_control(self) -> bool:
        """Whether the answer was known beforehand."""
        return self.role.is_gold

    @property
    def others_passed(self) -> tuple[int, int]:
        """How many others answered this control as expected, of how many."""
        right = sum(count for label, count in self.others.items() if label in self.expected)
        return right, sum(self.others.values())


@dataclass(frozen=True, slots=True)
class DeskSubmission:
    """All of one submission."""

    row: StoredAssignment
    reward_cents: int
    pairs: tuple[SeenPair, ...]
    findings: tuple[Finding, ...]
    rejection: Rejection | None
    """Where it was rejected."""
    active_s: float | None
    """Active seconds on the page; None where nothing was measured."""
    evidence: tuple[Table, str] | None
    """Its answers and the rule that judges them, where its page asked for something else than pairs."""
    pictures: Mapping[int, str]
    """Where the desk shows the images that this names."""

    @property
    def failed(self) -> tuple[SeenPair, ...]:
        """The controls that were not answered as expected, or not at all."""
        return tuple(
            pair for pair in self.pairs if pair.is_control and pair.passed is not True and not pair.withdrawn
        )


@dataclass(frozen=True, slots=True)
class Strip:
    """A submission in short: its answers in the page's order."""

    row: StoredAssignment
    cells: tuple[Judgement, ...]
    active_s: float | None
    passed: tuple[bool | None, ...]
    """Of each cell: whether the control was passed; None for other pairs and where it was not answered."""
    ratings: tuple[GivenRating, ...] = ()
    """In place of cells where the page asked for ratings."""
    is_other: bool = False
    """Whether the page asked something else than pairs."""

    @property
    def golds(self) -> tuple[int, int]:
        """Controls passed, controls answered."""
        answered = [check for check in self.passed if check is not None]
        return sum(answered), len(answered)


def submission(context: Context, number: int, golds: GoldState) -> DeskSubmission:
    """Everything about one submission; haste is among its findings, though it decides nothing.

    Raises:
        StoreError: there is none of this number.
    """
    session, environment = context.session, context.environment
    row = find_submission(session, environment, number)
    rewards = {batch.name: batch.reward_cents for batch in hit_store.batches(session, environment)}
    pairs = _pairs(context, row, golds)
    hasty = haste((pair.seconds for pair in pairs), context.settings.min_seconds_a_pair)
    noted = answer_store.findings_of(session, [row.id]).get(row.id, [])
    active = ledger.active_ms(session, row.id)
    asked = hit_store.other_kinds(session, environment).get(row.hit_id, BatchKind.PAIRS)
    evidence = kind_of(asked).evidence(session, row)
    cells = [] if evidence is None else [cell for cells in evidence[0].rows for cell in cells]
    named = {cell.image_id for cell in cells if isinstance(cell, ImageName)}
    addresses = desk_store.image_addresses(session, list(named)).items()
    return DeskSubmission(
        row=row,
        reward_cents=rewards[row.batch],
        pairs=pairs,
        findings=(*noted, *([Finding(HASTE, hasty.text)] if hasty is not None else [])),
        rejection=rejection_of(session, row),
        active_s=None if active is None else active / 1000,
        evidence=evidence,
        pictures={id_: shown for id_, place in addresses if (shown := _address(id_, *place)) is not None},
    )


def _pairs(context: Context, row: StoredAssignment, golds: GoldState) -> tuple[SeenPair, ...]:
    session, rule = context.session, context.settings.gold_rule
    answers = judgement_store.judgements_of(session, row.id)
    pairs = [answer.record.pair for answer in answers]
    images = desk_store.image_addresses(session, [pair.image_id for pair in pairs])
    captions = desk_store.caption_texts(session, [pair.caption_id for pair in pairs])
    documents = desk_store.document_texts(session, [pair.image_id for pair in pairs])
    # A caption has one image of its own; a query may have several documents.
    dataset = item_store.dataset(session)
    originals = set(item_store.originals(session, dataset.id)) if documents else set()
    changed = item_store.references(session, dataset.id) if dataset.form.composed else {}
    shown = [changed[pair.caption_id] for pair in pairs if changed]
    references = desk_store.image_addresses(session, shown)
    others: dict[Pair, Counter[Label]] = defaultdict(Counter)
    for beside in judgement_store.judgements_beside(session, context.environment, row.id):
        if beside.record.label is not None and beside.worker_id != row.worker_id:
            others[beside.record.pair][beside.record.label] += 1
    seen = []
    for stored in answers:
        answer, pair = stored.record, stored.record.pair
        text, own_image = captions[pair.caption_id]
        control = answer.role.is_gold
        seen.append(
            SeenPair(
                place=stored.place,
                image_id=pair.image_id,
                image=_address(pair.image_id, *images[pair.image_id]),
                caption=text,
                own=own_image == pair.image_id or pair in originals,
                role=answer.role,
                outcome=answer.outcome,
                label=answer.label,
                passed=rule.passed(answer.role, answer.label) if control else None,
                withdrawn=control and GoldControl(pair, answer.role) in golds.withdrawn,
                given=answer.given,
                seconds=answer.active_ms / 1000 if answer.active_ms else None,
                others=others[pair],
                expected=rule.passes(answer.role) if control else (),
                texts=documents.get(pair.image_id, ()),
                kind=dataset.form.left_part,
                reference=_address(first, *references[first])
                if (first := changed.get(pair.caption_id)) is not None
                else None,
            )
        )
    return tuple(seen)


def _address(image_id: int, file: str | None, url: str | None) -> str | None:
    if file is not None:
        return f"/image/{image_id}"
    return url if url is not None and url.startswith("https://") else None


def strips(session: Session, environment: Environment, worker_id: int, rule: GoldRule) -> tuple[Strip, ...]:
    """A worker's submissions in short, newest first."""
    answers: dict[int, list[Judgement]] = defaultdict(list)
    for answer in judgement_store.judgements_of_worker(session, worker_id):
        answers[answer.assignment_id].append(answer.record)
    rows = answer_store.assignments(session, environment, worker_id=worker_id)
    rated = rating_pages.answers(session, [row.id for row in rows if row.id not in answers])
    others = hit_store.other_kinds(session, environment)
    found = []
    for row in reversed(rows):
        cells, is_other = answers[row.id], row.hit_id in others
        # Of pairs the cells tell the time; of what other pages ask, the ledger does, whatever it is.
        active_ms = (
            ledger.active_ms(session, row.id) if is_other else sum(cell.active_ms or 0 for cell in cells)
        )
        passed = (rule.passed(cell.role, cell.label) if cell.role.is_gold else None for cell in cells)
        found.append(
            Strip(
                row=row,
                cells=tuple(cells),
                active_s=active_ms / 1000 if active_ms else None,
                passed=tuple(passed),
                ratings=tuple(rated.get(row.id, ())),
                is_other=is_other,
            )
        )
    return tuple(found)


def waiting(session: Session, environment: Environment) -> tuple[StoredAssignment, ...]:
    """The review queue, oldest first."""
    return tuple(answer_store.assignments(session, environment, (Decision.QUEUED,)))
