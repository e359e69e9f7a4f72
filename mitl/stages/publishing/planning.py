"""Planning a batch: which pairs are open, which controls check the work, what stands on which page."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from mitl.db.store import commitments, open_work
from mitl.db.store import hits as hit_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import HitRow
from mitl.db.store.open_work import Barren
from mitl.hits.packing import CANDIDATES_PER_HIT, hits_needed, overlap_pairs, pack, pack_overlap
from mitl.proposals.sampling import shuffled_pairs
from mitl.records import BatchKind, HitItem, HitState, PackedHit, Pair, PairRole
from mitl.settings import Settings
from mitl.stages.publishing.campaign import Campaign
from mitl.stages.publishing.controls import draw_controls


@dataclass(frozen=True, slots=True)
class Replacement:
    """A new page for the pairs of a HIT whose answers could not be used."""

    replaces: HitRow
    page: PackedHit
    assignments: int
    """Workers who are still wanted."""

    @property
    def attempt(self) -> int:
        """Counts on from the HIT it replaces."""
        return self.replaces.attempt + 1


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be posted: pages of a new batch and pages asked again, or what an earlier run did not post."""

    fresh: tuple[PackedHit, ...]
    again: tuple[Replacement, ...]
    leftover: tuple[HitRow, ...]
    leftover_pages: Mapping[int, Sequence[HitItem]] = field(default_factory=dict)
    """What stands on the leftover HITs, by their row."""
    n_limited: int = 0
    """Pairs of ``fresh`` and ``again`` that count against a limit: second opinions of new pairs do not."""
    n_held_back: int = 0
    """Open pairs that the campaign's limit leaves to a later run."""
    out: tuple[StoredPlan, ...] = ()
    """What earlier runs of the same words have out and the limit counts."""
    interrupted: tuple[StoredPlan, ...] = ()
    """What an interrupted run planned, if any: this plan completes it and holds nothing else."""

    @property
    def pages(self) -> list[Sequence[HitItem]]:
        """All pages."""
        return [
            *(page.items for page in self.fresh),
            *(replacement.page.items for replacement in self.again),
            *self.leftover_pages.values(),
        ]

    @property
    def n_hits(self) -> int:
        """HITs to post."""
        return len(self.fresh) + len(self.again) + len(self.leftover)

    @property
    def n_pairs(self) -> int:
        """Candidate pairs on the pages."""
        return sum(item.role is PairRole.CANDIDATE for page in self.pages for item in page)

    @property
    def n_overlap(self) -> int:
        """Candidates of the new batch that are asked of a second worker."""
        return sum(item.role is PairRole.OVERLAP for page in self.fresh for item in page.items)

    @property
    def n_repeats(self) -> int:
        """Pairs that fill the last pages of the new batch."""
        return sum(item.role is PairRole.REPEAT for page in self.fresh for item in page.items)


def make_plan(session: Session, settings: Settings, campaign: Campaign, *, hold: bool = False) -> Plan:
    """Pack what is open in this environment; reads only.

    What an interrupted run left is completed alone: its bill was confirmed under its own bounds, and whatever is
    planned beside it would pass them. That holds until a command has told how it ended, also where it posted all.

    Args:
        hold: plan nothing new and ask nothing again: only what an earlier run did not post, if anything.

    Raises:
        StoreError: nothing was proposed yet, or a ranking file that the controls need is gone.
        ProposalError: there are not enough gold controls.
    """
    environment = campaign.environment
    leftover = hit_store.hits(session, environment, (HitState.PLANNED, HitState.SENDING), BatchKind.PAIRS)
    candidates = proposal_store.candidate_pairs(session, campaign.directions)
    if not candidates and not leftover:
        proposal_store.latest_run(session)
    left_pages = hit_store.hit_items(session, [hit.id for hit in leftover])
    interrupted = commitments.untold_plans(session, environment, BatchKind.PAIRS)
    if hold or leftover or interrupted:
        return Plan((), (), tuple(leftover), left_pages, interrupted=tuple(interrupted))
    asked = open_work.asked_pairs(session, environment)
    barren = open_work.barren_hits(session, environment)
    again_pairs = {pair for wanted in barren for pair in wanted.pairs}
    open_pairs = [pair for pair in candidates if pair not in asked and pair not in again_pairs]
    # A pilot is as many HITs as it says: what asks again waits for the rest of the campaign.
    barren = [] if campaign.pilot is not None else barren
    items = hit_store.hit_items(session, [wanted.hit.id for wanted in barren])
    out = commitments.limited_plans_out(session, environment, campaign.words) if campaign.limited else []
    limit = None if campaign.limit is None else max(campaign.limit - sum(plan.asked for plan in out), 0)
    wanted_again = _wanted_again(barren, items, limit)
    n_again = sum(len(one.pairs) for one in wanted_again)
    fresh_pairs = open_pairs if limit is None else open_pairs[: max(limit - n_again, 0)]
    if campaign.pilot is not None:
        pages = max(campaign.pilot - sum(plan.hits for plan in out), 0)
        fresh_pairs = sorted(
            shuffled_pairs(fresh_pairs, settings.seed, "pilot")[: pages * CANDIDATES_PER_HIT]
        )
    n_limited = n_again + len(fresh_pairs)
    n_held_back = (
        len(open_pairs) + sum(len(one.pairs) for one in barren) - n_limited if campaign.limited else 0
    )
    n_second = len(overlap_pairs(fresh_pairs, campaign.overlap, settings.seed))
    n_pages = hits_needed(len(fresh_pairs)) + hits_needed(n_second) + len(wanted_again)
    if not n_pages:
        return Plan((), (), (), n_held_back=n_held_back, out=tuple(out))
    positives, negatives = draw_controls(session, settings, environment, n_pages)
    again = tuple(
        wanted.pack(_rotate(positives, place), _rotate(negatives, place), settings)
        for place, wanted in enumerate(wanted_again)
    )
    used = len(wanted_again)
    golds = (_rotate(positives, used), _rotate(negatives, used))
    fresh = pack(fresh_pairs, *golds, seed=settings.seed)
    if n_second:
        fresh += pack_overlap(fresh, *golds, share=campaign.overlap, seed=settings.seed)
    return Plan(tuple(fresh), again, (), {}, n_limited, n_held_back, tuple(out))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A HIT that is to be asked again, with the pairs to ask and the role that they had."""

    hit: HitRow
    pairs: tuple[Pair, ...]
    role: PairRole
    met: frozenset[Pair]
    """The controls that stood on it, which are not used again."""
    missing: int
    """Workers who are still wanted."""

    def pack(self, positives: Sequence[Pair], negatives: Sequence[Pair], settings: Settings) -> Replacement:
        """The page that replaces it."""
        (page,) = pack(
            self.pairs,
            [pair for pair in positives if pair not in self.met],
            [pair for pair in negatives if pair not in self.met],
            seed=_page_seed(settings, self.hit),
        )
        placed = tuple(
            dataclasses.replace(item, role=self.role) if item.role is PairRole.CANDIDATE else item
            for item in page.items
        )
        return Replacement(self.hit, PackedHit(self.hit.number, placed), self.missing)


def _wanted_again(
    barren: Sequence[Barren], items: Mapping[int, Sequence[HitItem]], limit: int | None
) -> list[_Wanted]:
    """What barren HITs leave to be asked, page by page, within the limit of pairs."""
    found: list[_Wanted] = []
    left = limit
    for one in barren:
        if left is not None:
            if len(one.pairs) > left:
                break
            left -= len(one.pairs)
        on_page = items[one.hit.id]
        second = any(item.role is PairRole.OVERLAP for item in on_page)
        met = frozenset(item.pair for item in on_page if item.role.is_gold)
        role = PairRole.OVERLAP if second else PairRole.CANDIDATE
        found.append(_Wanted(one.hit, tuple(one.pairs), role, met, one.missing))
    return found


def token(project_id: str, batch: str, number: int, attempt: int) -> str:
    """The ``UniqueRequestToken`` of a HIT: 48 hexadecimal digits of a hash over what names it."""
    name = f"mitl1:{project_id}:{batch}:{number}:{attempt}"
    return hashlib.sha256(name.encode()).hexdigest()[:48]


def annotation(project_id: str, hit: HitRow) -> str:
    """The ``RequesterAnnotation`` of a HIT, by which it is found again."""
    return annotation_prefix(project_id) + hit.key


def annotation_prefix(project_id: str) -> str:
    """How the annotations of all HITs of a project begin."""
    return f"mitl1:{project_id}:"


def _page_seed(settings: Settings, hit: HitRow) -> int:
    """Names the new page, not the project, so that the same data and seed make the same pages anywhere."""
    name = f"{settings.seed}:{hit.batch}:{hit.number}:{hit.attempt + 1}"
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


def _rotate(pairs: Sequence[Pair], places: int) -> list[Pair]:
    if not pairs:
        return []
    start = places % len(pairs)
    return [*pairs[start:], *pairs[:start]]
