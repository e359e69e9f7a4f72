"""What the server says of the HITs that are out, and which of them somebody deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitl.campaign.reconciling import DISPOSED, look_up_missing
from mitl.crowd.client import ListedHit, MTurkClient
from mitl.db.store.hits import HitRow
from mitl.records import HitState

_FINISHED = ("Reviewable", "Reviewing", DISPOSED)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The HITs of ours that are out, as the server has them."""

    found: Mapping[int, ListedHit]
    """By our row."""
    deleted: tuple[HitRow, ...] = ()
    """Those that are gone from the server though mitl did not delete them."""

    def is_finished(self, hit: HitRow) -> bool:
        """Whether nobody can work on this HIT any more."""
        found = self.found.get(hit.id)
        return hit in self.deleted or (found is not None and found.status in _FINISHED)

    def n_submitted(self, hit: HitRow) -> int:
        """How many submissions of this HIT the server has; 0 where it no longer knows."""
        found = self.found.get(hit.id)
        return 0 if found is None else found.n_submitted

    def n_settled(self, hit: HitRow) -> int:
        """How many submissions of this HIT are approved or rejected there; 0 where it no longer knows."""
        found = self.found.get(hit.id)
        return 0 if found is None else found.n_completed


def sweep(client: MTurkClient, known: Sequence[HitRow], listed: Mapping[str, ListedHit]) -> Sweep:
    """Hold our posted HITs against the listing; a HIT that is missing there is asked for by its id.

    Args:
        known: all HITs of the environment.
        listed: what ListHITs gave, by the server's ids.

    Raises:
        EndpointError: the server knows none of the HITs: another account, or another server.
    """
    missing = look_up_missing(client, known, listed)
    names = {hit.id: hit.mturk_hit_id or "" for hit in known if hit.state is HitState.POSTED}
    found = {id_: listed[name] for id_, name in names.items() if name in listed}
    found.update({hit.id: one for hit, one in missing.items() if one is not None})
    deleted = [hit for hit, one in missing.items() if one is None or one.status == DISPOSED]
    return Sweep(found, tuple(deleted))
