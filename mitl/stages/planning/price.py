"""What answers cost, as publishing them would be priced."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.campaign.bill import Terms, terms_of
from mitl.campaign.kinds.pairs.planning import PAIRS_PER_HIT, Campaign
from mitl.campaign.pilots import estimate_of, find_pilots
from mitl.core.pricing import Bill, bill, format_dollars
from mitl.crowd.context import Context
from mitl.db.store import hits as hit_store
from mitl.hits.packing import CANDIDATES_PER_HIT, hits_needed
from mitl.hits.templates import load_template
from mitl.records import BatchKind, JudgementSource


@dataclass(frozen=True, slots=True)
class Price:
    """What pages of pairs are posted under."""

    terms: Terms
    charges_fee: bool

    def cents(self, answers: float) -> int:
        """Of so many pairs asked once of each worker wanted, controls included."""
        return self._bill(hits_needed(round(answers))).total_cents

    def answers_for(self, cents: int) -> int:
        """The most pairs that can be asked for so many cents."""
        each = self._bill(1).total_cents
        return CANDIDATES_PER_HIT * (cents // each) if each else 0

    def _bill(self, hits: int) -> Bill:
        return bill(
            hits,
            assignments=self.terms.assignments,
            reward_cents=self.terms.reward_cents,
            estimate_s=self.terms.estimate.seconds,
            charges_fee=self.charges_fee,
        )

    @property
    def words(self) -> str:
        """In one line."""
        workers = f" × {self.terms.assignments} workers" if self.terms.assignments > 1 else ""
        return (
            f"priced as `mitl publish` does: {format_dollars(self.terms.reward_cents)} a HIT of {CANDIDATES_PER_HIT} "
            f"pairs{workers}, {self.terms.estimate.seconds:,} s ({self.terms.estimate.note})"
            + ("; with MTurk's fee" if self.charges_fee else "")
        )


def price_of(context: Context, *, template: str | None, reward_cents: int | None, assignments: int) -> Price:
    """The price of one page more.

    Args:
        template: the wording; None takes that of the latest batch of pairs, else the plain one.

    Raises:
        TemplateError: there is no such wording.
    """
    session, settings = context.session, context.settings
    if template is None:
        posted = [
            batch.template
            for batch in hit_store.batches(session, context.environment)
            if batch.kind == BatchKind.PAIRS and batch.source is JudgementSource.CROWD
        ]
        template = posted[-1] if posted else Campaign(context.environment).template
    request = Campaign(
        context.environment, template=template, reward_cents=reward_cents, assignments=assignments
    )
    wording = load_template(template, settings.wordings)
    pilots = find_pilots(session, context.environment, template, PAIRS_PER_HIT)
    terms = terms_of(settings, request, wording, estimate_of(pilots, wording, PAIRS_PER_HIT))
    return Price(terms, charges_fee=settings.endpoint is not None)
