"""What a kind of campaign says of itself, the records that every kind fills, and the counts that it prints.

Planning, pricing, posting, harvesting, deciding and paying are the same for all kinds. A kind says what is asked, how a
page looks, where questions and answers are stored, what an answer says and whether a submission passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self, TypedDict, TypeVar

from sqlalchemy.orm import Session

from mitl.db.store import commitments
from mitl.db.store import hits as hit_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import UNPOSTED, BatchRow, StoredHit
from mitl.records import Environment, Finding, GoldControl, Page, Parsed, Table, several

if TYPE_CHECKING:
    from mitl.db.store.answers import StoredAssignment
    from mitl.db.store.open_work import HitToReplace
    from mitl.db.store.parses import Submissions
    from mitl.hits.templates import HitTemplate
    from mitl.records.questions import GoldRule, Question
    from mitl.settings import Settings


_MONEY = ("assignments", "rewards_cents", "fees_cents", "total_cents")


class PostingCounts(TypedDict, total=False):
    """What every kind counts; each adds what its pages hold."""

    environment: Annotated[str, "sandbox or live"]
    batch: Annotated[str | None, "name of the new batch; null where only earlier HITs were posted"]
    hits: Annotated[int, "HITs that would be posted (`--dry-run`)"]
    hits_posted: Annotated[int, "HITs created by this run"]
    hits_adopted: Annotated[int, "HITs of an interrupted run, or of an older database, found on the server"]
    assignments: Annotated[int, "assignments of all HITs on the bill"]
    rewards_cents: Annotated[int, "all rewards on the bill"]
    fees_cents: Annotated[int, "all fees on the bill"]
    total_cents: Annotated[int, "the bill, fees included"]
    reward_cents: Annotated[int | None, "reward of the new batch's HITs; null without one"]
    estimate_s: Annotated[int | None, "seconds that one of them is expected to take; null without one"]
    committed_cents: Annotated[int, "spent and promised on this environment after posting"]
    balance_cents: Annotated[int, "the balance after posting; the sandbox always says 10,000.00"]
    requests: Annotated[int, "requests written (`--dry-run`)"]
    largest_question_bytes: Annotated[int, "size of the largest page (`--dry-run`); 65,535 are allowed"]


def dry_keys(*own: str) -> tuple[str, ...]:
    """The keys of a dry run, a kind's own in their place."""
    return ("environment", *own, *_MONEY, "requests", "largest_question_bytes")


def posted_keys(*own: str, after: tuple[str, ...] = (), pilots: bool = False) -> tuple[str, ...]:
    """The keys of a run that posts.

    Args:
        own, after: a kind's own, before and after the numbers of HITs.
        pilots: whether the kind has pilots.
    """
    return (
        *("batch", "environment", *own, "hits_posted", "hits_adopted", "hits_again", *after, *_MONEY),
        *("reward_cents", "estimate_s", *(("pilot",) if pilots else ()), "committed_cents", "balance_cents"),
    )


PROBES = 5
"""Pictures that are fetched as a worker's browser would, before anything is posted."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a publishing command was asked for; each kind adds its own wishes."""

    kind: ClassVar[str]
    environment: Environment
    direction: str = "both"
    """``i2t``, ``t2i`` or ``both``."""
    template: str = ""
    reward_cents: int | None = None
    """Per HIT; None computes it from the hourly floor and the expected working time."""
    assignments: int = 1
    limit: int | None = None
    """Pairs or comparisons that runs of the same words may have out at once."""
    max_cost_cents: int | None = None
    """Of the whole bill of a plan, what an interrupted run of it has posted included."""
    pilot: int | None = None
    """Post so many HITs and no more, to find out how long the work takes; not every kind has pilots."""
    probes: int = PROBES
    """Pictures to fetch before posting; 0 fetches none."""

    @property
    def words(self) -> dict[str, object]:
        """By what a repetition of this command is known, whatever it may cost."""
        return {"kind": self.kind, "direction": self.direction, "template": self.template, **self.own_words}

    @property
    def own_words(self) -> Mapping[str, object]:
        """What a kind adds to these."""
        return {}

    @property
    def limited(self) -> bool:
        """Whether it says how much may be out."""
        return self.limit is not None or self.pilot is not None


@dataclass(frozen=True, slots=True)
class Replacement:
    """A page for what a HIT asked in vain, with the HIT whose terms it keeps."""

    replaces: StoredHit
    page: Page[Any]
    assignments: int
    """Workers who are still wanted."""

    @property
    def attempt(self) -> int:
        """Counts on from the HIT it replaces."""
        return self.replaces.attempt + 1


@dataclass(frozen=True, slots=True)
class Leftover:
    """What an interrupted run planned; falsy where no run was interrupted."""

    hits: tuple[StoredHit, ...] = ()
    """Planned and not posted."""
    pages: Mapping[int, Sequence[Any]] = field(default_factory=dict)
    """What stands on them, by their row."""
    plans: tuple[StoredPlan, ...] = ()
    """Posted whole or not: no command has told yet how they ended."""

    def __bool__(self) -> bool:
        return bool(self.hits or self.plans)


WhoMet = Sequence[Sequence[frozenset[str]]]

MOST_GROUPS = 30
"""HIT types of one run that somebody is not offered. Workers see one group of HITs for each; and the more people work,
the less often one of them meets again what they have answered."""


def kept_off(who: WhoMet) -> list[frozenset[str]]:
    """For each page those who are not offered it, as they have met all of it; of more than `MOST_GROUPS` such sets of
    people those that save most, and nobody elsewhere."""
    met = [frozenset.intersection(*page) if page else frozenset() for page in who]
    pages = Counter(people for people in met if people)
    saving = sorted(pages, key=lambda people: pages[people] * len(people), reverse=True)
    chosen = set(saving[:MOST_GROUPS])
    return [people if people in chosen else frozenset() for people in met]


@dataclass(frozen=True, slots=True)
class Met:
    """What pages ask that people have answered before, and who is left to answer it."""

    questions: int = 0
    """They count from people alone who have not answered them."""
    hits: int = 0
    """That hold such questions."""
    kept_off: int = 0
    """Of these, HITs that somebody is not offered, because no answer of theirs would count there."""
    people: int = 0
    """Who have worked so far and may go on."""
    left: int | None = None
    """The fewest of them who have not answered such a question; None without one."""

    @classmethod
    def of(cls, who: WhoMet, people: Set[str]) -> Self:
        """Of pages with such questions, who met them, and the people who have worked so far and may go on."""
        asked = [workers for page in who for workers in page if workers]
        return cls(
            len(asked),
            hits=sum(map(any, who)),
            kept_off=sum(map(bool, kept_off(who))),
            people=len(people),
            left=min(len(people - workers) for workers in asked),
        )

    @property
    def words(self) -> str:
        """For the bill."""
        off = f"; {several(self.kept_off, 'HIT is', 'HITs are')} not offered to those who cannot help there"
        return (
            f"{several(self.questions, 'question')} on {several(self.hits, 'HIT')} can count only from somebody "
            f"who has not answered before, for one of them from {self.left or 'none'} of the "
            f"{several(self.people, 'person', 'people')} so far{off * bool(self.kept_off)}"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where half of these people, or more, would be paid for nothing, or be offered nothing."""
        if self.left is None or 2 * self.left > self.people:
            return ()
        more = "`mitl crowd invite`, more places on the panel; on MTurk others come by themselves"
        return (f"{self.words}; let more people in first ({more}), or pages are paid in vain or wait",)


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be posted: pages of a new batch and pages asked again, or what an interrupted run left."""

    fresh: tuple[Page[Any], ...] = ()
    again: tuple[Replacement, ...] = ()
    left: Leftover = Leftover()
    """What an interrupted run left: this plan completes it and holds nothing else."""
    n_limited: int = 0
    """Pairs or comparisons of ``fresh`` and ``again`` that count against a limit."""
    n_held_back: int = 0
    """Open ones that the request's limit leaves to a later run."""
    left_out: str = ""
    """How many are never asked, and why, as the bill says it."""
    out: tuple[StoredPlan, ...] = ()
    """What earlier runs of the same words have out and the limit counts."""
    waits_for: str = ""
    """Why nothing new is planned for now; empty where nothing is awaited."""
    met: Met = Met()

    @property
    def pages(self) -> list[Sequence[Any]]:
        """What stands on each page."""
        return [
            *(page.items for page in self.fresh),
            *(replacement.page.items for replacement in self.again),
            *self.left.pages.values(),
        ]

    def count(self, *roles: object) -> int:
        """Places of all pages in one of these roles."""
        return sum(item.role in roles for page in self.pages for item in page)

    @property
    def n_hits(self) -> int:
        """HITs to post."""
        return len(self.fresh) + len(self.again) + len(self.left.hits)


def leftover(
    session: Session,
    environment: Environment,
    kind: str,
    items: Callable[[Session, Sequence[int]], Mapping[int, Sequence[Any]]],
) -> Leftover:
    """What an interrupted run of a kind left behind, with what stands on its pages.

    It is completed alone: its bill was confirmed under its own bounds, and whatever is planned beside it would pass
    them. That holds until a command has told how it ended, also where it posted all.
    """
    hits = hit_store.hits(session, environment, UNPOSTED, kind)
    pages = items(session, [hit.id for hit in hits])
    return Leftover(tuple(hits), pages, tuple(commitments.untold_plans(session, environment, kind)))


def plans_out(session: Session, request: Request) -> tuple[tuple[StoredPlan, ...], int | None]:
    """What earlier runs of a request's words have out, and how many more its limit leaves; None without a limit."""
    if not request.limited:
        return (), None
    out = tuple(commitments.limited_plans_out(session, request.environment, request.words))
    return out, None if request.limit is None else max(request.limit - sum(plan.asked for plan in out), 0)


@dataclass(frozen=True, slots=True)
class WorkingTime:
    """The expected working time of a HIT, and where it comes from."""

    seconds: int
    pilot: str | None = None
    """The batch whose times say so; None for the wording's own estimate."""
    note: str = ""
    """As the bill says it."""
    is_kept: bool = False
    """Whether its batch keeps it; else the wording's own estimate stands for it."""


def again_lines(plan: Plan) -> list[str]:
    """How many of the HITs are not asked for the first time, or were planned before."""
    lines = []
    if plan.again:
        asks = "asks" if len(plan.again) == 1 else "ask"
        lines.append(f"  {several(len(plan.again), 'HIT')} {asks} again what could not be used")
    if plan.left.hits:
        was = "was" if len(plan.left.hits) == 1 else "were"
        lines.append(
            f"  {several(len(plan.left.hits), 'HIT')} {was} planned by an earlier run and not posted"
        )
    return lines


def columns(label: str, value: str) -> str:
    """A figure of the bill under its name."""
    return f"  {label:<14} {value:>13}"


def spread(sizes: Collection[int]) -> str:
    """The sizes of pages: ``10``, or ``8 to 10``."""
    least, most = min(sizes), max(sizes)
    return str(most) if least == most else f"{least} to {most}"


@dataclass(frozen=True, slots=True)
class Wording:
    """In what words a batch asks, and how long a HIT is said to take."""

    template: HitTemplate
    estimate_s: int


@dataclass(frozen=True, slots=True)
class PostedBatch:
    """A batch that was posted from here, and in what words."""

    row: BatchRow
    wording: Wording


@dataclass(frozen=True, slots=True)
class Shown:
    """What pages may show."""

    captions: Mapping[int, str]
    sources: Mapping[int, str]
    """Image, sound or video → the address under which pages show it."""
    contact: str | None
    """Whom workers may write to."""
    texts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Of documents, which have these in place of a picture."""
    references: Mapping[int, int] = field(default_factory=dict)
    """Caption → the image that it changes, of composed queries."""


@dataclass(frozen=True, slots=True)
class HeldTo:
    """By what submissions are judged."""

    environment: Environment
    rule: GoldRule
    withdrawn: Collection[GoldControl]
    """Gold controls that are no longer trusted."""


FindingsOf = Mapping[int, Sequence[Finding]]
"""Submission → why it goes to a person."""

RequestT = TypeVar("RequestT", bound=Request, contravariant=True)
PlanT = TypeVar("PlanT", bound=Plan)


class CampaignKind(Protocol[RequestT, PlanT]):
    """One kind of campaign: all that differs from the others."""

    name: str
    """As ``batch.kind`` and the templates' ``asks`` have it; the folder's name."""
    command: str
    """What posts it: ``mitl publish``."""
    ask_again: str
    """What asks again what could not be used; the command itself where that needs no words that it was given."""
    scores: str
    """The command that shows what the answers come to, besides a release; empty where there is none."""
    asked: str
    """What a HIT asks, in the plural: ``pairs``."""
    shown: str
    """What its pages show: ``rankings side by side``."""
    given: str
    """What people give, in the plural: ``preferences``."""
    page_size: int
    """Questions of a usual HIT, for wordings that are priced by the question."""
    answer_field: str
    """Each place's field ``pNN_<answer_field>`` holds the answer."""
    choices: Sequence[str]
    """The values that the field must offer."""
    dry_keys: tuple[str, ...]
    posted_keys: tuple[str, ...]
    """The keys of ``counts`` in ``--json``, of a dry run and of a posting one."""
    submissions: Submissions
    """Where its questions and answers are kept."""

    # What is asked.
    def plan(self, session: Session, settings: Settings, request: RequestT, *, adopted: int) -> PlanT:
        """Pack what is open in the request's environment, or what an interrupted run left; reads only.

        Args:
            adopted: HITs that were just found to have reached the server.
        """

    def estimate(self, template: HitTemplate, plan: PlanT) -> WorkingTime:
        """How long a HIT of the new batch takes."""

    def to_replace(self, session: Session, environment: Environment) -> Sequence[HitToReplace]:
        """Closed HITs that leave something to be asked again."""

    # Where it is stored.
    def add_batch(self, session: Session, batch_id: int, plan: PlanT, like: int | None = None) -> None:
        """Write down what belongs to a new batch besides its pages.

        Args:
            like: the batch of which it only asks pages again, at another reward.
        """

    def add_items(self, session: Session, items: Mapping[int, Sequence[Any]]) -> None:
        """Write down what stands on new HITs, by their rows."""

    def items(self, session: Session, hit_ids: Sequence[int]) -> Mapping[int, Sequence[Any]]:
        """What stands on these HITs, by place."""

    def who_met(self, session: Session, environment: Environment, pages: Sequence[Sequence[Any]]) -> WhoMet:
        """For each page, by question, the workers of whom no further answer counts, by their ids on the requester
        API."""

    # How it looks.
    def images(self, item: Any) -> Iterable[int]:
        """The images that one question shows."""

    def check_page(self, items: Sequence[Any], hit: str) -> None:
        """PackingError where a page is not as its kind wants it."""

    def render(self, items: Sequence[Any], wording: Wording, shown: Shown) -> tuple[str, list[str]]:
        """A page, and the texts on it that are its own, unescaped, in the order in which they stand."""

    # How publishing speaks of it.
    def headline(self, request: RequestT, plan: PlanT) -> str:
        """The request in few words, for the bill's first line."""

    def bill_lines(self, plan: PlanT) -> list[str]:
        """What stands on the pages, for the bill."""

    def facts(self, plan: PlanT) -> Mapping[str, object]:
        """What only this kind counts, under the keys of ``--json``."""

    def nothing_open(self, *, adopted: int) -> str:
        """Why nothing is left to ask."""

    # What comes back.
    def parse(self, xml: str, *, places: Collection[int], questions: Sequence[Question]) -> Parsed[Any]:
        """What a submission to a template with these questions says; AnswerError where it cannot be read at all."""

    def set_parses(self, session: Session, parses: Mapping[int, Any]) -> None:
        """Write parses down, in place of earlier ones."""

    # What it means.
    def findings(self, session: Session, rows: Sequence[StoredAssignment], held_to: HeldTo) -> FindingsOf:
        """Why each of these submissions, all parsed and undecided, goes to a person; none where its page passes.

        Whatever the kind, one goes there too where the worker's record on pages of pairs is bad; none is rejected.
        """

    def evidence(self, session: Session, row: StoredAssignment) -> tuple[Table, str] | None:
        """A submission's answers and, in lines, the rule that judges them; None where `mitl review show` has its own
        table."""
