"""What one HIT of pairs costs, before anything is planned."""

from __future__ import annotations

from sqlalchemy.orm import Session

from mitl.campaign.bill import terms_of
from mitl.campaign.kinds import fitting, wording_of
from mitl.campaign.kinds.pairs.planning import PAIRS_PER_HIT
from mitl.campaign.kinds.protocol import Request
from mitl.campaign.pilots import estimate_of, find_pilots
from mitl.core.pricing import Bill, bill
from mitl.db.store import items as item_store
from mitl.settings import Settings


def price_of_hit(session: Session, settings: Settings, request: Request, *, charges_fee: bool) -> Bill:
    """The bill of one HIT as publishing would price it: by the wording's latest pilot, else by its own estimate.

    Raises:
        TemplateError: there is no such wording.
        UsageError: the wording cannot show the items of the data set.
    """
    request = fitting(request, item_store.find_dataset(session), settings.wordings)
    wording = wording_of(request.kind, request.template, settings.wordings)
    pilots = find_pilots(session, request.environment, request.template, PAIRS_PER_HIT)
    terms = terms_of(settings, request, wording, estimate_of(pilots, wording, PAIRS_PER_HIT))
    return bill(
        1,
        assignments=terms.assignments,
        reward_cents=terms.reward_cents,
        estimate_s=terms.estimate.seconds,
        charges_fee=charges_fee,
    )
