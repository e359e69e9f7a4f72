"""Planning a batch: which pairs are open, which controls check the work, what stands on which page."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import open_work
from mitl.db.store import proposals as proposal_store
from mitl.db.store.hits import HitRow
from mitl.db.store.open_work import Barren
from mitl.errors import ProposalError, StoreError
from mitl.hits.packing import hits_needed, overlap_pairs, pack, pack_overlap
from mitl.positives.merging import CXC_POSITIVE
from mitl.proposals.candidates import NamedRanking, ranked_pairs
from mitl.proposals.golds import gold_negatives, gold_positives
from mitl.proposals.packed import pack_pairs
from mitl.records import Direction, Environment, HitItem, HitState, PackedHit, Pair, PairRole
from mitl.retrieval.rankings import read_ranking
from mitl.settings import Settings
from mitl.stages.golds import gold_state
from mitl.stages.ranking import ranking_path

PAGES_PER_GOLD = 3
"""On how many pages of a batch a control stands. One met once could never be put on trial: withdrawing it takes
two workers of good record who failed it. The pages of one control lie a third of the batch apart."""


FEW_PAGES = 18
"""A batch of up to so many pages has a control of its own for each."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """What `mitl publish` was asked for."""

    environment: Environment
    direction: str = "both"
    """``i2t``, ``t2i`` or ``both``: whose proposals are asked."""
    template: str = "pairs-plain"
    reward_cents: int | None = None
    """Per HIT; None computes it from the hourly floor and the template's estimate."""
    assignments: int = 1
    limit: int | None = None
    overlap: float = 0.0
    """Share of the new candidates that is asked of a second worker as well, 0 to 1."""
    max_cost_cents: int | None = None

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions whose proposals are asked."""
        return tuple(Direction) if self.direction == "both" else (Direction(self.direction),)


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
    """What would be posted: pages of a new batch, pages asked again, and HITs an earlier run did not post."""

    fresh: tuple[PackedHit, ...]
    again: tuple[Replacement, ...]
    leftover: tuple[HitRow, ...]
    leftover_pages: Mapping[int, Sequence[HitItem]] = field(default_factory=dict)
    """What stands on the leftover HITs, by their row."""

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


def make_plan(session: Session, settings: Settings, campaign: Campaign) -> Plan:
    """Pack what is open in this environment; reads only.

    Raises:
        StoreError: nothing was proposed yet, or a ranking file that the controls need is gone.
        ProposalError: there are not enough gold controls.
    """
    environment = campaign.environment
    leftover = hit_store.hits(session, environment, (HitState.PLANNED, HitState.SENDING))
    candidates = proposal_store.candidate_pairs(session, campaign.directions)
    if not candidates and not leftover:
        proposal_store.latest_run(session)
    asked = open_work.asked_pairs(session, environment)
    open_pairs = [pair for pair in candidates if pair not in asked]
    barren = open_work.barren_hits(session, environment)
    items = hit_store.hit_items(session, [wanted.hit.id for wanted in barren])
    left_pages = hit_store.hit_items(session, [hit.id for hit in leftover])
    again_pairs = {pair for wanted in barren for pair in wanted.pairs}
    wanted_again = _wanted_again(barren, items, campaign.limit)
    n_again = sum(len(wanted.pairs) for wanted in wanted_again)
    fresh_pairs = [pair for pair in open_pairs if pair not in again_pairs]
    if campaign.limit is not None:
        fresh_pairs = fresh_pairs[: max(campaign.limit - n_again, 0)]
    n_second = len(overlap_pairs(fresh_pairs, campaign.overlap, settings.seed))
    n_pages = hits_needed(len(fresh_pairs)) + hits_needed(n_second) + len(wanted_again)
    if not n_pages:
        return Plan((), (), tuple(leftover), left_pages)
    positives, negatives = _draw_golds(session, settings, environment, n_pages)
    again = tuple(
        wanted.pack(_rotate(positives, place), _rotate(negatives, place), settings)
        for place, wanted in enumerate(wanted_again)
    )
    used = len(wanted_again)
    golds = (_rotate(positives, used), _rotate(negatives, used))
    fresh = pack(fresh_pairs, *golds, seed=settings.seed)
    if n_second:
        fresh += pack_overlap(fresh, *golds, share=campaign.overlap, seed=settings.seed)
    return Plan(tuple(fresh), again, tuple(leftover), left_pages)


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
    return f"mitl1:{project_id}:{hit.key}"


def _page_seed(settings: Settings, hit: HitRow) -> int:
    """Names the new page, not the project, so that the same data and seed make the same pages anywhere."""
    name = f"{settings.seed}:{hit.batch}:{hit.number}:{hit.attempt + 1}"
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)


def _rotate(pairs: Sequence[Pair], places: int) -> list[Pair]:
    if not pairs:
        return []
    start = places % len(pairs)
    return [*pairs[start:], *pairs[:start]]


def _draw_golds(
    session: Session, settings: Settings, environment: Environment, n_pages: int
) -> tuple[list[Pair], list[Pair]]:
    """Gold positives and negatives for this many pages; those that stand on fewest pages so far come first."""
    dataset = item_store.dataset(session)
    captions = item_store.captions(session, dataset.id)
    exclusions = item_store.exclusions(session)
    ratings = item_store.ratings(session)
    withdrawn = {gold.pair for gold in gold_state(judgement_store.judgements(session, environment)).withdrawn}
    used = {pair for (pair, _), _count in hit_store.gold_use(session, environment).items()}
    originals = [Pair(caption.image_id, caption.id) for caption in captions]
    refused = {pair for pair in originals if any(entry.covers(pair) for entry in exclusions)} | withdrawn
    known = {
        *originals,
        *(pair for pair, score in ratings.items() if score >= CXC_POSITIVE),
        *_judged_positive(session, environment),
    }
    queries = proposal_store.queries(session)
    image_ids = [image.id for image in item_store.images(session, dataset.id, settings.project)]
    ranked = ranked_pairs(list(_all_rankings(session, settings, dataset.id)))
    seed = settings.seed + len(used)
    # Two spare controls let a page whose candidates hold one of them take another.
    wanted = max(-(-n_pages // PAGES_PER_GOLD), min(n_pages, FEW_PAGES)) + 2
    fresh = [pair for pair in originals if pair not in refused | used]
    pool = fresh if len(fresh) >= wanted else [pair for pair in originals if pair not in refused]
    positives = gold_positives(pool, excluded=refused, ratings=ratings, n=min(wanted, len(pool)), seed=seed)
    negatives = gold_negatives(
        queries[Direction.I2T],
        queries[Direction.T2I],
        image_ids,
        [caption.id for caption in captions],
        ranked=ranked,
        known_positives=pack_pairs([*known, *withdrawn, *used]),
        n=wanted,
        seed=seed,
    )
    if not positives:
        raise ProposalError(
            "no gold positive is left: every original is excluded or withdrawn; look at `mitl review`"
        )
    return positives, negatives


def _judged_positive(session: Session, environment: Environment) -> set[Pair]:
    return {
        row.record.pair
        for row in judgement_store.judgements(session, environment)
        if row.record.label is not None and row.record.label.is_positive and not row.record.role.is_gold
    }


def _all_rankings(session: Session, settings: Settings, dataset_id: int) -> Iterator[NamedRanking]:
    """Every ranking file of every stored run: a gold negative may be in none of them."""
    images, captions = item_store.id_maps(session, dataset_id)
    for run in proposal_store.runs(session):
        folder = settings.runs / run.hash
        config = json.loads(run.config)
        for entry in config["annotators"]:
            for direction in Direction:
                if not config["queries"][direction.value]["count"]:
                    continue
                path = ranking_path(folder, entry["name"], direction)
                if not path.exists():
                    raise StoreError(
                        f"the ranking {path} is gone; run `mitl propose` again with the queries and annotators of "
                        f"run {run.hash}, which makes it anew"
                    )
                sides = (images, captions) if direction is Direction.I2T else (captions, images)
                yield NamedRanking(entry["name"], direction, read_ranking(path, *sides))
