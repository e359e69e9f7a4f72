"""The kind of campaign that asks which of two rankings of one query is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Estimate, Golds, Shown, Wording, again_lines, columns
from mitl.campaign.kinds.rankings.planning import StudyPlan, make_plan, n_asked
from mitl.campaign.kinds.rankings.systems import Study
from mitl.crowd.comparison_answers import parse_comparisons
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import items as item_store
from mitl.db.store import preferences as preference_store
from mitl.db.store.answers import AssignmentRow
from mitl.hits.ranking_pages import page_comparison, render_rankings
from mitl.hits.templates import HitTemplate
from mitl.judgements.goldcheck import BAD_RECORD, EXCLUDED_WORKER, GoldVerdict
from mitl.records import (
    BatchKind,
    Comparison,
    ComparisonAnswer,
    ComparisonRole,
    Decision,
    Direction,
    Environment,
    Finding,
    ParsedComparisons,
    Preference,
    Table,
)
from mitl.records.gold_rule import GoldRule

CONTROL_FAILED = "comparison_control_failed"
CONTROL_MISSING = "comparison_control_missing"
NO_ANSWER = "no_preference"

Controls = Sequence[tuple[int, Preference, Preference | None]]
"""Place, right answer, given answer."""

RULE = "rule: every control passes with its better side; that both are equal does not pass"

_MONEY = ("assignments", "rewards_cents", "fees_cents", "total_cents")


class Rankings:
    """Pages of comparisons, some of them with one side that is known to be better."""

    name = BatchKind.RANKINGS.value
    command = "mitl prefer publish"
    scores = "mitl prefer scores"
    asked = "comparisons"
    shown = "rankings side by side"
    given = "preferences"
    page_size = 10
    answer_field = "prefer"
    choices = tuple(Preference)
    dry_keys = (
        *("environment", "systems", "hits", "comparisons", "alike"),
        *(*_MONEY, "requests", "largest_question_bytes"),
    )
    posted_keys = (
        *(
            "batch",
            "environment",
            "systems",
            "comparisons",
            "alike",
            "hits_posted",
            "hits_adopted",
            "hits_again",
        ),
        *(*_MONEY, "reward_cents", "estimate_s", "committed_cents", "balance_cents"),
    )
    plan = staticmethod(make_plan)
    to_replace = staticmethod(comparison_store.hits_to_replace)
    add_items = staticmethod(comparison_store.add_items)
    items = staticmethod(comparison_store.comparisons)
    unparsed = staticmethod(preference_store.unparsed)
    submissions = staticmethod(preference_store.ids)
    places = staticmethod(preference_store.places)
    parse = staticmethod(parse_comparisons)
    parsed = ParsedComparisons
    set_parses = staticmethod(preference_store.set_parses)

    def estimate(self, template: HitTemplate, plan: StudyPlan) -> Estimate:
        """By the wording's seconds for each comparison of the fullest page; the batch keeps it."""
        note = f"the wording's {template.seconds_per_pair} s a comparison"
        return Estimate(plan.per_hit * template.seconds_per_pair, note=note, is_kept=True)

    def add_batch(self, session: Session, batch_id: int, plan: StudyPlan) -> None:
        """Write down who meets."""
        comparison_store.add_systems(session, batch_id, plan.systems)

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

    def headline(self, request: Study, plan: StudyPlan) -> str:
        """See `CampaignKind`."""
        return f"preferences {request.direction} · template {request.template}"

    def bill_lines(self, plan: StudyPlan) -> list[str]:
        """See `CampaignKind`."""
        sizes = {len(page) for page in plan.pages}
        controls = max(sum(item.role is ComparisonRole.CONTROL for item in page) for page in plan.pages)
        least, most = min(sizes), max(sizes)
        size = f"{most if least == most else f'{least} to {most}'} a HIT, {controls} of them controls"
        comparisons = sum(map(n_asked, plan.pages))
        lines = [
            f"  {'systems':<14} {', '.join(system.name for system in plan.systems)}",
            f"{columns('comparisons', f'{comparisons:,}')}{columns('HITs', f'{plan.n_hits:,}')} ({size})",
        ]
        if plan.n_alike:
            lines.append(f"  {plan.n_alike:,} are left out, since both systems give the same list")
        return lines + again_lines(plan)

    def facts(self, plan: StudyPlan) -> Mapping[str, object]:
        """See `CampaignKind`."""
        return {
            "systems": [system.name for system in plan.systems],
            "comparisons": sum(map(n_asked, plan.pages)),
            "alike": plan.n_alike,
        }

    def nothing_open(self, *, adopted: int) -> str:
        """See `CampaignKind`."""
        return "every comparison of these systems on these queries is asked"

    def verdicts(
        self,
        session: Session,
        environment: Environment,
        rows: Sequence[AssignmentRow],
        golds: Golds,
        rule: GoldRule,
    ) -> Mapping[int, GoldVerdict]:
        """By the page's controls, and by the worker's record on pages of pairs."""
        ids = [row.id for row in rows]
        controls = preference_store.controls(session, ids)
        given = preference_store.answers(session, ids)
        verdicts = {}
        for row in rows:
            answered = any(answer.answer is not None for answer in given.get(row.id, ()))
            findings = check_comparisons(controls.get(row.id, ()), answered=answered)
            if golds.record(row.worker).is_bad:
                findings.append(Finding(BAD_RECORD, golds.record(row.worker).text))
            if row.excluded:
                findings.append(Finding(EXCLUDED_WORKER))
            decision = Decision.QUEUED if findings else Decision.PASS
            verdicts[row.id] = GoldVerdict(decision, tuple(findings))
        return verdicts

    def evidence(self, session: Session, row: AssignmentRow) -> tuple[Table, str]:
        """All comparisons of a submission with their answers."""
        page = comparison_store.comparisons(session, [row.hit_id])[row.hit_id]
        given = {
            answer.place: answer for answer in preference_store.answers(session, [row.id]).get(row.id, ())
        }
        images, captions = item_store.id_maps(session, item_store.dataset(session).id)
        known = {Direction.I2T: images, Direction.T2I: captions}
        names = {direction: {id_: name for name, id_ in ids.items()} for direction, ids in known.items()}
        columns = ("place", "role", "left", "right", "answer", "expected", "s", "own words", "query")
        rows = tuple(
            _evidence_row(item, given.get(item.place), names[item.direction][item.query_id]) for item in page
        )
        return Table(f"submission {row.id} · HIT {row.batch}:{row.number} · preferences", columns, rows), RULE


KIND = Rankings()


def check_comparisons(controls: Controls, *, answered: bool) -> list[Finding]:
    """Why a page does not pass; nothing where every control was answered rightly and something was answered at all.

    On a control only the better side is right: that both are equal is not.
    """
    findings = [] if answered else [Finding(NO_ANSWER, "no comparison was answered")]
    for place, expected, given in controls:
        if given is None:
            findings.append(Finding(CONTROL_MISSING, f"place {place} is a control and was not answered"))
        elif given is not expected:
            findings.append(
                Finding(CONTROL_FAILED, f"place {place}: {given.value}, though {expected.value} is better")
            )
    return findings


def _evidence_row(item: Comparison, answer: ComparisonAnswer | None, query: str) -> tuple[object, ...]:
    given = None if answer is None else answer.answer
    return (
        item.place,
        item.role.value,
        item.left,
        item.right,
        given.value if given else "–" if answer is None else answer.outcome.value,
        "" if item.expected is None else item.expected.value,
        None if answer is None or answer.active_ms is None else f"{answer.active_ms / 1000:.1f}",
        "" if answer is None else answer.text,
        query,
    )
