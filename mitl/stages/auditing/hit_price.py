"""What one HIT of pairs costs, before anything is planned."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mitl.campaign.bill import PostingTerms, expects_fee, terms_of
from mitl.campaign.kinds import fitting, wording_of
from mitl.campaign.kinds.pairs.planning import PAIRS_PER_HIT, Campaign
from mitl.campaign.kinds.protocol import Request
from mitl.campaign.pilots import estimate_of, find_pilots
from mitl.core.pricing import Bill, LostPages, bill, format_dollars
from mitl.crowd.context import Context
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import open_work
from mitl.hits.packing import CANDIDATES_PER_HIT, hits_needed
from mitl.records import BatchKind, JudgementSource


@dataclass(frozen=True, slots=True)
class HitPrice:
    """What pages of pairs are posted under, and how many of them are asked again."""

    terms: PostingTerms
    charges_fee: bool
    lost: LostPages

    def hits(self, answers: float) -> int:
        """HITs until so many pairs have a usable answer of each worker wanted, as expected."""
        return self.lost.hits(hits_needed(round(answers)))

    def cents(self, answers: float) -> int:
        """What these cost, controls included."""
        return self.bill(self.hits(answers)).total_cents

    def answers_for(self, cents: int) -> int:
        """The most pairs that are expected to be answered for so many cents."""
        hit_cents = self.bill(1).total_cents
        if not hit_cents:
            return 0
        return CANDIDATES_PER_HIT * math.floor(cents // hit_cents * (1 - self.lost.share) + 1e-9)

    def bill(self, hits: int) -> Bill:
        """Of so many HITs."""
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
            + f"; {self.lost.words}, and prices include it"
        )


def price_of(context: Context, request: Request) -> HitPrice:
    """What publishing would post under: as the wording's latest pilot says, else by its own estimate.

    Raises:
        TemplateError: there is no such wording.
        UsageError: the wording cannot show the items of the data set.
    """
    session, settings = context.session, context.settings
    request = fitting(request, item_store.find_dataset(session), settings.wordings)
    wording = wording_of(request.kind, request.template, settings.wordings)
    pilots = find_pilots(session, request.environment, request.template, PAIRS_PER_HIT)
    terms = terms_of(settings, request, wording, estimate_of(pilots, wording, PAIRS_PER_HIT))
    lost = open_work.lost_pages(session, request.environment)
    return HitPrice(terms, expects_fee(session, settings, request.environment), lost)


def latest_wording(context: Context) -> str:
    """That of the latest batch of pairs on the crowd server, else the plain one."""
    posted = [
        batch.template
        for batch in hit_store.batches(context.session, context.environment)
        if batch.kind == BatchKind.PAIRS and batch.source is JudgementSource.CROWD
    ]
    return posted[-1] if posted else Campaign(context.environment).template
