"""A study's plan with its price: every HIT as it would be posted, and the bill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.store import hits as hit_store
from mitl.db.store.hits import BatchRow, HitRow
from mitl.hits.templates import HitTemplate, load_template
from mitl.records import BatchKind, Comparison, HitState
from mitl.settings import Settings
from mitl.stages.hits.reconciling import Sweep
from mitl.stages.preferring.planning import StudyPlan, make_study_plan
from mitl.stages.preferring.study import Study
from mitl.stages.publishing.bill import Quote, Terms, make_quote, terms_of
from mitl.stages.publishing.pilot import Estimate
from mitl.stages.publishing.planning import token


@dataclass(frozen=True, slots=True)
class DueComparisons:
    """A HIT of a study as it would be posted."""

    hit: HitRow
    page: Sequence[Comparison]
    template: HitTemplate
    reward_cents: int


@dataclass(frozen=True, slots=True)
class Job:
    """What would be posted, at what price."""

    plan: StudyPlan
    terms: Terms
    quote: Quote
    batches: Mapping[int, BatchRow]
    templates: Mapping[int, HitTemplate]
    new_batch: str
    """The name that the new batch will have."""

    def due(self, project_id: str) -> list[DueComparisons]:
        """The HITs as they would be posted."""
        found = [
            DueComparisons(
                _row(project_id, self.new_batch, page.number, 1, self.terms.assignments),
                page.comparisons,
                self.terms.template,
                self.terms.reward_cents,
            )
            for page in self.plan.fresh
        ]
        for one in self.plan.again:
            old = one.replaces
            row = _row(project_id, old.batch, old.number, one.attempt, one.assignments)
            found.append(self._of_batch(row, old.batch_id, one.comparisons))
        return found + [
            self._of_batch(hit, hit.batch_id, self.plan.leftover_pages[hit.id]) for hit in self.plan.leftover
        ]

    def _of_batch(self, hit: HitRow, batch_id: int, page: Sequence[Comparison]) -> DueComparisons:
        return DueComparisons(hit, page, self.templates[batch_id], self.batches[batch_id].reward_cents)


def make_job(session: Session, settings: Settings, study: Study, sweep: Sweep, *, charges_fee: bool) -> Job:
    """What is open, packed and priced.

    Raises:
        TemplateError: the wording is unknown, or asks for something else than rankings.
        What ``make_study_plan`` raises.
    """
    template = load_template(study.template, settings.wordings, asks=BatchKind.RANKINGS)
    plan = make_study_plan(session, settings, study)
    per_hit = plan.per_hit or study.per_hit
    note = f"the wording's {template.seconds_per_pair} s a comparison"
    terms = terms_of(
        settings, study.campaign, template, Estimate(per_hit * template.seconds_per_pair, None, note)
    )
    batches = {
        row.id: row for row in hit_store.batches(session, study.environment) if row.kind is BatchKind.RANKINGS
    }
    templates = {id_: load_template(row.template, settings.wordings) for id_, row in batches.items()}
    estimates = {id_: row.estimate_s or terms.estimate.seconds for id_, row in batches.items()}
    quote = make_quote(plan, terms, batches, estimates, charges_fee=charges_fee)
    return Job(plan, terms, quote, batches, templates, hit_store.next_batch_name(session, sweep.last_batch))


def _row(project_id: str, batch: str, number: int, attempt: int, assignments: int) -> HitRow:
    key = token(project_id, batch, number, attempt)
    return HitRow(0, 0, batch, number, attempt, assignments, HitState.PLANNED, None, key)
