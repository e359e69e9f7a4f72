"""The kind of campaign that asks which of two rankings of one query is better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import (
    FindingsOf,
    HeldTo,
    Plan,
    PostingCounts,
    Replacement,
    Shown,
    WhoMet,
    Wording,
    WorkingTime,
    again_lines,
    columns,
    dry_keys,
    leftover,
    plans_out,
    posted_keys,
    spread,
)
from mitl.campaign.kinds.rankings.controls import distrusted, draw_controls, known, with_other_controls
from mitl.campaign.kinds.rankings.systems import PreferenceStudy, contest
from mitl.campaign.pilots import rotated, within
from mitl.crowd.answers import parse_comparisons
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.hits import StoredHit
from mitl.hits.comparisons import meetings, n_pages, pack_comparisons, sided
from mitl.hits.rendering import page_comparison, render_rankings
from mitl.hits.templates import HitTemplate
from mitl.records import (
    BatchKind,
    Comparison,
    ComparisonAnswer,
    ComparisonRole,
    Direction,
    Environment,
    Finding,
    Page,
    Preference,
    System,
    Table,
)
from mitl.records.results import ImageName, printed_by
from mitl.settings import Settings

Key = tuple[Direction, int, frozenset[tuple[str, tuple[int, ...]]]]
"""What is compared, whoever stands on which side."""


@dataclass(frozen=True, slots=True)
class StudyPlan(Plan):
    """What would be posted, and who meets."""

    systems: tuple[System, ...] = ()
    n_alike: int = 0
    """Meetings that are left out because both systems give the same list."""
    per_hit: int = 0
    """Comparisons of the fullest new page, controls included; what its working time is reckoned for."""

    @property
    def names(self) -> list[str]:
        """Of the systems: one whose rankings changed between two studies is two, of one name."""
        return list(dict.fromkeys(system.name for system in self.systems))


def n_asked(items: Sequence[Comparison]) -> int:
    """Comparisons among these, controls left out."""
    return sum(item.role is ComparisonRole.ASKED for item in items)


def make_plan(
    session: Session, settings: Settings, request: PreferenceStudy, *, adopted: int = 0
) -> StudyPlan:
    """Pack what is not asked yet in this environment, or what an interrupted run left, alone; reads only.

    Raises:
        What ``contest`` and ``draw_controls`` raise.
    """
    environment = request.environment
    left = leftover(session, environment, BatchKind.RANKINGS, comparison_store.comparisons)
    if left:
        return StudyPlan(left=left, systems=_met_on(session, environment, left.hits), per_hit=request.per_hit)
    chosen = contest(session, settings, request)
    met = meetings(chosen.rankings, chosen.queries, settings.seed)
    n_systems = len(chosen.systems)
    n_alike = len(chosen.queries) * (n_systems * (n_systems - 1) // 2) - len(met)
    before = comparison_store.asked(session, environment)
    asked = {_key_of(item) for item in before}
    still = [
        new
        for new in met
        if _key(request.direction, new.query_id, (new.one, new.one_items), (new.other, new.other_items))
        not in asked
    ]
    to_replace = comparison_store.hits_to_replace(session, environment)
    pages = comparison_store.comparisons(session, [hit.hit.id for hit in to_replace])
    shown = comparison_store.asked(session, environment, ComparisonRole.CONTROL) if to_replace else []
    bad = distrusted(session, environment) if to_replace else frozenset()
    again = [
        Replacement(
            hit.hit,
            Page(hit.hit.number, with_other_controls(pages[hit.hit.id], rotated(shown, turn), bad)),
            hit.missing,
        )
        for turn, hit in enumerate(to_replace)
    ]
    n_open = len(still) + sum(n_asked(page.page.items) for page in again)
    out, limit = plans_out(session, request)
    again, room = within(again, limit, lambda page: n_asked(page.page.items))
    n_again = sum(n_asked(page.page.items) for page in again)
    still = still[:room]
    n_limited = len(still) + n_again
    nothing = ""
    if request.again:
        nothing = "no page of a study is to be asked again"
    elif n_alike and not met:
        nothing = "these systems give the same list on every query, so nothing is left to prefer"
    n_controls = n_pages(len(still), request.per_hit, request.controls) * request.controls
    fresh = pack_comparisons(
        sided(still, before, direction=request.direction, seed=settings.seed),
        draw_controls(session, settings, request, chosen, n_controls),
        direction=request.direction,
        seed=settings.seed,
        per_hit=request.per_hit,
        n_controls=request.controls,
    )
    return StudyPlan(
        fresh=tuple(fresh),
        again=tuple(again),
        n_limited=n_limited,
        n_held_back=n_open - n_limited,
        out=out,
        waits_for="" if n_open else nothing,
        systems=chosen.systems or _met_on(session, environment, [page.replaces for page in again]),
        n_alike=n_alike,
        per_hit=max((len(page.items) for page in fresh), default=request.per_hit),
    )


def _met_on(session: Session, environment: Environment, hits: Sequence[StoredHit]) -> tuple[System, ...]:
    """What the batches of these HITs compare, by name."""
    met_in = comparison_store.systems(session, environment)
    return tuple(sorted({system for hit in hits for system in met_in[hit.batch]}, key=lambda met: met.name))


def _key(direction: Direction, query_id: int, *sides: tuple[str, tuple[int, ...]]) -> Key:
    return direction, query_id, frozenset(sides)


def _key_of(item: Comparison) -> Key:
    return _key(item.direction, item.query_id, (item.left, item.left_items), (item.right, item.right_items))


CONTROL_FAILED = "comparison_control_failed"
CONTROL_MISSING = "comparison_control_missing"
NO_ANSWER = "no_preference"

Controls = Sequence[tuple[int, Preference, Preference | None]]
"""Place, right answer, given answer."""

RULE = "rule: every control passes with its better side; that both are equal does not pass"


@printed_by("prefer publish")
class PreferPublishCounts(PostingCounts, total=False):
    """What publishing a preference study counts."""

    systems: Annotated[list[str], "names of what is compared"]
    comparisons: Annotated[int, "comparisons on the pages, controls left out"]
    alike: Annotated[int, "meetings left out because both systems give the same list"]
    hits_again: Annotated[int, "HITs that ask again what could not be used"]


class RankingsKind:
    """Pages of comparisons, some of them with one side that is known to be better."""

    name = BatchKind.RANKINGS.value
    command = "mitl prefer publish"
    ask_again = "mitl prefer publish --again"
    scores = "mitl prefer scores"
    asked = "comparisons"
    shown = "rankings side by side"
    given = "preferences"
    page_size = 10
    answer_field = "prefer"
    choices = tuple(Preference)
    dry_keys = dry_keys("systems", "hits", "comparisons", "alike")
    posted_keys = posted_keys("systems", "comparisons", "alike")
    plan = staticmethod(make_plan)
    to_replace = staticmethod(comparison_store.hits_to_replace)
    add_items = staticmethod(comparison_store.add_items)
    items = staticmethod(comparison_store.comparisons)
    submissions = comparison_store.STORED
    parse = parse_comparisons
    set_parses = comparison_store.STORED.set_parses

    def who_met(
        self, session: Session, environment: Environment, pages: Sequence[Sequence[Comparison]]
    ) -> WhoMet:
        """See `CampaignKind`: a page counts once for each worker."""
        met: dict[Key, set[str]] = defaultdict(set)
        for item, worker in comparison_store.answered(session, environment):
            met[_key_of(item)].add(worker)
        asked = ComparisonRole.ASKED
        return [[frozenset(met[_key_of(item)]) for item in page if item.role is asked] for page in pages]

    def estimate(self, template: HitTemplate, plan: StudyPlan) -> WorkingTime:
        """By the wording's seconds for each comparison of the fullest page; the batch keeps it."""
        note = f"the wording's {template.seconds_per_pair} s a comparison"
        return WorkingTime(plan.per_hit * template.seconds_per_pair, note=note, is_kept=True)

    def add_batch(self, session: Session, batch_id: int, plan: StudyPlan, like: int | None = None) -> None:
        """Write down who meets."""
        systems: Sequence[System] = plan.systems
        if like is not None:
            old = hit_store.batch(session, like)
            systems = comparison_store.systems(session, old.environment)[old.name]
        comparison_store.add_systems(session, batch_id, systems)

    def images(self, item: Comparison) -> tuple[int, ...]:
        """The query, or the results."""
        if item.direction is Direction.I2T:
            return (item.query_id,)
        return (*item.left_items, *item.right_items)

    def check_page(self, items: Sequence[Comparison], hit: str) -> None:
        """What can be wrong with a page of comparisons shows when it is rendered."""

    def render(self, items: Sequence[Comparison], wording: Wording, shown: Shown) -> tuple[str, list[str]]:
        """See `CampaignKind`."""
        comparisons = [page_comparison(item, shown.captions, shown.sources) for item in items]
        seconds = len(items) * wording.template.seconds_per_pair
        html = render_rankings(wording.template, comparisons, contact=shown.contact, estimate_s=seconds)
        return html, [text for comparison in comparisons for text in comparison.shown]

    def headline(self, request: PreferenceStudy, plan: StudyPlan) -> str:
        """See `CampaignKind`."""
        return f"preferences {request.direction} · template {request.template}"

    def bill_lines(self, plan: StudyPlan) -> list[str]:
        """See `CampaignKind`."""
        sizes = {len(page) for page in plan.pages}
        controls = max(sum(item.role is ComparisonRole.CONTROL for item in page) for page in plan.pages)
        size = f"{spread(sizes)} a HIT, {controls} of them controls"
        comparisons = sum(map(n_asked, plan.pages))
        lines = [
            f"  {'systems':<14} {', '.join(plan.names)}",
            f"{columns('comparisons', f'{comparisons:,}')}{columns('HITs', f'{plan.n_hits:,}')} ({size})",
        ]
        if plan.n_alike:
            lines.append(f"  {plan.n_alike:,} are left out, since both systems give the same list")
        return lines + again_lines(plan)

    def facts(self, plan: StudyPlan) -> Mapping[str, object]:
        """See `CampaignKind`."""
        return {
            "systems": plan.names,
            "comparisons": sum(map(n_asked, plan.pages)),
            "alike": plan.n_alike,
        }

    def nothing_open(self, *, adopted: int) -> str:
        """See `CampaignKind`."""
        return "every comparison of these systems on these queries is asked"

    def findings(self, session: Session, rows: Sequence[StoredAssignment], held_to: HeldTo) -> FindingsOf:
        """By the page's controls as far as they are trusted."""
        if not rows:
            return {}
        ids = [row.id for row in rows]
        controls = comparison_store.controls(session, ids)
        answers = comparison_store.answers(session, ids)
        pages = comparison_store.comparisons(session, [row.hit_id for row in rows])
        bad = distrusted(session, held_to.environment)
        by_assignment = {}
        for row in rows:
            answered = any(answer.answer is not None for answer in answers.get(row.id, ()))
            forgiven = {item.place for item in pages[row.hit_id] if known(item) in bad}
            trusted = [given for given in controls.get(row.id, ()) if given[0] not in forgiven]
            by_assignment[row.id] = check_comparisons(trusted, answered=answered)
        return by_assignment

    def evidence(self, session: Session, row: StoredAssignment) -> tuple[Table, str]:
        """All comparisons of a submission with their answers."""
        page = comparison_store.comparisons(session, [row.hit_id])[row.hit_id]
        answers = {
            answer.place: answer for answer in comparison_store.answers(session, [row.id]).get(row.id, ())
        }
        images, _ = item_store.names(session, item_store.dataset(session).id)
        texts = desk_store.caption_texts(session, [item.query_id for item in page])
        columns = ("place", "role", "left", "right", "answer", "expected", "s", "own words", "query")
        rows = tuple(
            _evidence_row(
                item,
                answers.get(item.place),
                ImageName.of(images[item.query_id], item.query_id)
                if item.direction is Direction.I2T
                else texts[item.query_id][0],
            )
            for item in page
        )
        return Table(f"submission {row.id} · HIT {row.batch}:{row.number} · preferences", columns, rows), RULE


KIND = RankingsKind()


def check_comparisons(controls: Controls, *, answered: bool) -> list[Finding]:
    """Why a page does not pass; nothing where every control was answered rightly and something was answered at all.

    On a control only the better side is right: that both are equal is not.
    """
    findings = [] if answered else [Finding(NO_ANSWER, "no comparison was answered")]
    for place, expected, answer in controls:
        if answer is None:
            findings.append(Finding(CONTROL_MISSING, f"place {place} is a control and was not answered"))
        elif answer is not expected:
            findings.append(
                Finding(CONTROL_FAILED, f"place {place}: {answer.value}, though {expected.value} is better")
            )
    return findings


def _evidence_row(item: Comparison, answer: ComparisonAnswer | None, query: str) -> tuple[object, ...]:
    preference = None if answer is None else answer.answer
    return (
        item.place,
        item.role.value,
        item.left,
        item.right,
        preference.value if preference else "–" if answer is None else answer.outcome.value,
        "" if item.expected is None else item.expected.value,
        None if answer is None or answer.active_ms is None else f"{answer.active_ms / 1000:.1f}",
        "" if answer is None else answer.text,
        query,
    )
