"""Planning pages of pairs: which are open, which controls check the work, how long a HIT takes, what stands where."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Leftover, Plan, Replacement, Request, leftover, plans_out
from mitl.campaign.pilots import (
    PilotBatch,
    find_pilots,
    rotated,
    seed_of,
    waits_for_pilot,
    within,
)
from mitl.core.arrays import unpack_pairs
from mitl.db.store import audits as audit_store
from mitl.db.store import hits as hit_store
from mitl.db.store import open_work
from mitl.db.store import proposals as proposal_store
from mitl.db.store import rounds as round_store
from mitl.db.store.open_work import HitToReplace
from mitl.errors import PackingError, RoundError, UsageError
from mitl.hits.packing import (
    CANDIDATES_PER_HIT,
    hits_needed,
    overlap_pairs,
    pack,
    pack_again,
    pack_overlap,
    pages_again,
)
from mitl.hits.validation import check_batch
from mitl.proposals.sampling import shuffled_pairs
from mitl.records import (
    AuditPurpose,
    BatchKind,
    Direction,
    Environment,
    HitItem,
    Page,
    Pair,
    PairRole,
    several,
)
from mitl.records.rounds import DOUBTS
from mitl.settings import Settings

PAIRS_PER_HIT = CANDIDATES_PER_HIT + 2


@dataclass(frozen=True, slots=True)
class Campaign(Request):
    """Which pairs to ask, in which words, of how many workers, for how much; what `mitl publish` is given.

    A pilot is of random open pairs; its HITs count as out until they are done, as pairs under a limit do.
    """

    kind: ClassVar[str] = BatchKind.PAIRS
    template: str = "pairs-plain"
    overlap: float = 0.0
    """Share of the new candidates that is asked of a second worker as well, 0 to 1."""
    wait_for_pilot: bool = True
    """Whether nothing new is posted in this wording while a pilot of it is out."""
    drawn: bool = False
    """Whether only what an audit drew is asked, for recall or for machine labels; other candidates stay open."""
    chosen: bool = False
    """Whether only what the open round chose is asked, beside what audits drew; who proposed it does not matter."""
    further: int | None = None
    """The most pairs that are asked of further workers because their answers are disputed or in doubt; None for all."""

    def __post_init__(self) -> None:
        if self.chosen and (self.pilot is not None or self.drawn or self.direction != "both"):
            raise UsageError(
                "--chosen asks what a round chose, in both directions and beside what audits drew; leave out --pilot, "
                "--drawn and --direction"
            )
        if self.pilot is not None and self.overlap:
            raise UsageError(
                "--overlap does not go with --pilot; a pilot is as many HITs as it says, so give --overlap with the "
                "rest of the campaign"
            )

    @property
    def own_words(self) -> Mapping[str, object]:
        """Whether it is a pilot, and what alone it asks."""
        alone = {"drawn": self.drawn, "chosen": self.chosen}
        return {"pilot": self.pilot is not None} | {name: True for name, asked in alone.items() if asked}

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions whose proposals are asked."""
        return tuple(Direction) if self.direction == "both" else (Direction(self.direction),)


@dataclass(frozen=True, slots=True)
class PairsPlan(Plan):
    """What would be posted, with the pilots whose times price it."""

    pilots: tuple[PilotBatch, ...] = ()

    @property
    def n_pairs(self) -> int:
        """Candidate pairs on the pages."""
        return self.count(PairRole.CANDIDATE)

    @property
    def n_audit(self) -> int:
        """Audit questions on the pages; a pair that several workers are asked counts as often."""
        return self.count(PairRole.AUDIT)

    @property
    def n_overlap(self) -> int:
        """Candidates of the new batch that are asked of a second worker."""
        return sum(item.role is PairRole.OVERLAP for page in self.fresh for item in page.items)

    @property
    def n_repeats(self) -> int:
        """Pairs that fill the last pages of the new batch."""
        return sum(item.role is PairRole.REPEAT for page in self.fresh for item in page.items)


def make_plan(session: Session, settings: Settings, request: Campaign, *, adopted: int = 0) -> PairsPlan:
    """Pack what is open in this environment, or what an interrupted run left, alone; reads only.

    Raises:
        StoreError: nothing was proposed yet, or a ranking file that the controls need is gone.
        ProposalError: there are not enough gold controls.
        RoundError: a round is open and its choices are not what is asked, or the other way about.
        UsageError: there is something to post, but a pilot of the same wording is out.
    """
    candidates, doubts = _candidates(session, request)
    left = leftover(session, request.environment, BatchKind.PAIRS, hit_store.hit_items)
    pilots = tuple(find_pilots(session, request.environment, request.template, PAIRS_PER_HIT))

    def planned() -> PairsPlan:
        return _open_plan(session, settings, request, candidates, doubts, left)

    waits = waits_for_pilot(
        pilots if request.wait_for_pilot else (),
        request,
        goes_on=bool(left.hits or adopted),
        is_open=lambda: planned().n_hits > 0,
    )
    if waits:
        return PairsPlan(left=left, waits_for=waits, pilots=pilots)
    return dataclasses.replace(planned(), pilots=pilots)


def who_met(
    session: Session, environment: Environment, pages: Sequence[Sequence[HitItem]]
) -> list[list[frozenset[str]]]:
    """See `CampaignKind.who_met`: an audit counts one answer of a worker on a pair, and so does everything else."""
    met = audit_store.met(session, environment)
    several = any(row.assignments > 1 for row in hit_store.batches(session, environment))
    # What wants one answer is no candidate of a page that is still to be posted once it has one.
    may_be_answered = open_work.ANSWERING if several else (PairRole.OVERLAP,)
    asked = {item.pair for page in pages for item in page if item.role in may_be_answered}
    answered = open_work.answered_by(session, environment, asked)

    def of(item: HitItem) -> frozenset[str]:
        before = answered.get(item.pair, _NOBODY) if item.role in may_be_answered else _NOBODY
        return before | met.get((item.pair, item.role), _NOBODY)

    return [[of(item) for item in page if not item.role.is_gold] for page in pages]


_NOBODY = frozenset[str]()


def _candidates(session: Session, request: Campaign) -> tuple[list[Pair], list[Pair]]:
    """What may be asked if it is open: what was proposed; or what the open round chose, in its order.

    Beside it what the round chose because it is in doubt, and wants another answer that no page out there will give.
    """
    under_way = round_store.open_round(session, request.environment)
    if request.chosen:
        if under_way is None:
            raise RoundError(
                f"no round is open on {request.environment}, so nothing is chosen; open one with `mitl round next`"
            )
        chosen = unpack_pairs(round_store.chosen_pairs(session, under_way.id)["pair"].to_numpy())
        if under_way.strategy != DOUBTS:
            return chosen, []
        out = open_work.live_pairs(session, request.environment, roles=open_work.ANSWERING)
        wanting = open_work.undecided(session, request.environment, under_way.id, chosen)
        return chosen, [pair for pair in wanting if pair not in out]
    if under_way is not None and not request.drawn:
        raise RoundError(
            f"round {under_way.number} is open and asks only what it chose: add --chosen; or end it with "
            "`mitl round close`, or `mitl round rollback` before it has posted all of that, after which every "
            "candidate is asked as before"
        )
    return proposal_store.candidate_pairs(session, request.directions), []


def _open_plan(
    session: Session,
    settings: Settings,
    request: Campaign,
    candidates: Sequence[Pair],
    doubts: Sequence[Pair],
    left: Leftover,
) -> PairsPlan:
    """What is open whether or not a pilot is out, or what is left."""
    environment = request.environment
    if not candidates and not left.hits:
        proposal_store.latest_run(session)
    if left:
        return PairsPlan(left=left)
    standing = _Standing.of(session, environment)
    excluded = open_work.left_out_of(session, environment, candidates) - standing.asked
    candidates = [pair for pair in candidates if pair not in excluded]
    left_out = "" if request.drawn else _left_out(len(excluded))
    what = _open_questions(standing, request, candidates, doubts)
    # A pilot is as many HITs as it says: what asks again waits for the rest of the campaign.
    to_replace = [] if request.pilot is not None else what.again
    n_open = len(what.pairs) + len(what.audits) + sum(map(_n_asked, to_replace))
    out, limit = plans_out(session, request)
    to_replace, room = within(to_replace, limit, _n_asked)
    n_again = sum(map(_n_asked, to_replace))
    now = what if room is None else what.within(room)
    if request.pilot is not None:
        pages = request.pilot - sum(plan.hits for plan in out)
        now = now.at_random(pages * CANDIDATES_PER_HIT, settings.seed)
    n_limited = n_again + len(now.pairs) + len(now.audits)
    n_held_back = n_open - n_limited if request.limited else 0
    n_second = len(overlap_pairs(now.pairs, request.overlap, settings.seed))
    # A run within a limit asks them only when all else of it has room, and a pilot never.
    disputed = now.disputed if not request.limited or not n_held_back else {}
    n_pages = hits_needed(len(now.pairs) + len(now.audits)) + hits_needed(n_second) + len(to_replace)
    n_pages += pages_again(disputed)
    if not n_pages:
        only = "chosen" if request.chosen else "drawn" if request.drawn else f"{request.direction} candidate"
        is_part = only != "both candidate" and not n_held_back
        why = f"every {only} pair is on an open HIT or judged" if is_part else ""
        if request.drawn and not any(audit_store.current(session, environment, of) for of in AuditPurpose):
            why = "no audit has drawn from the pairs as they stand; `mitl audit draw` does"
        return PairsPlan(n_held_back=n_held_back, left_out=left_out, out=out, waits_for=why)
    from mitl.campaign.kinds.pairs.controls import draw_controls  # which loads pandas and scipy

    further = [HitItem(place, pair, PairRole.OVERLAP) for place, pair in enumerate(disputed, 1)]
    (who,) = who_met(session, environment, [further])
    met = dict(zip(disputed, who, strict=True))
    now = dataclasses.replace(now, again=to_replace, disputed=disputed, met=met)
    before = hit_store.hit_items(session, [lost.hit.id for lost in to_replace])
    try:
        golds = draw_controls(session, settings, environment, n_pages)
        again, fresh = _packed(now, before, golds, request.overlap, settings.seed)
    except PackingError:
        # So many that no page can ask them all, where there are so many.
        golds = draw_controls(session, settings, environment, n_pages, spare=2 + CANDIDATES_PER_HIT)
        again, fresh = _packed(now, before, golds, request.overlap, settings.seed, may_meet=True)
    check_batch(fresh)
    return PairsPlan(
        tuple(fresh),
        tuple(again),
        n_limited=n_limited,
        n_held_back=n_held_back,
        left_out=left_out,
        out=out,
    )


def _left_out(n: int) -> str:
    """The excluded candidates in words; nothing where there is none."""
    which = f"{several(n, 'pair')} that exclusion lists name {'is' if n == 1 else 'are'} not asked"
    return f"{which}: no release would use the answers" if n else ""


@dataclass(frozen=True, slots=True)
class _Questions:
    """What may be asked now."""

    pairs: list[Pair]
    """Candidates; those drawn for machine labels come first."""
    n_drawn: int
    """How many of them these are."""
    audits: list[Pair]
    """In the order of drawing; a pair as often as HITs are to ask it."""
    again: list[HitToReplace]
    """Those that hold a pair drawn for machine labels come first."""
    disputed: Mapping[Pair, int]
    """Pairs that are to be asked of so many further workers: of the sample for machine labels, then those in doubt."""
    met: Mapping[Pair, Set[str]] = field(default_factory=dict)
    """Of these, who has answered them, once it is known which are asked."""

    def within(self, most: int) -> _Questions:
        """The first so many: what was drawn for labels, then the others in the proportion in which they wait."""
        most = max(most, 0)
        if most >= len(self.pairs) + len(self.audits):
            return self
        rest = max(most - self.n_drawn, 0)
        waiting = len(self.pairs) - self.n_drawn + len(self.audits)
        n_audits = -(-rest * len(self.audits) // waiting) if waiting else 0
        return dataclasses.replace(self, pairs=self.pairs[: most - n_audits], audits=self.audits[:n_audits])

    def at_random(self, most: int, seed: int) -> _Questions:
        """So many, whichever candidates."""
        pairs = shuffled_pairs(self.pairs, seed, "pilot")
        chosen = dataclasses.replace(self, pairs=pairs, n_drawn=0).within(most)
        return dataclasses.replace(chosen, pairs=sorted(chosen.pairs))


@dataclass(frozen=True, slots=True)
class _Standing:
    """What stands in the database, whichever candidates there are: to read it takes longest."""

    drawn: set[Pair]
    """Pairs of the sample for machine labels."""
    asked: set[Pair]
    again: list[HitToReplace]
    missing: Counter[Pair]
    """Answers that the audit of recall lacks."""
    disputed: Counter[Pair]

    @classmethod
    def of(cls, session: Session, environment: Environment) -> _Standing:
        """What is asked or wanted now."""
        return cls(
            audit_store.drawn_for_labels(session, environment),
            open_work.asked_pairs(session, environment),
            open_work.hits_to_replace(session, environment),
            audit_store.open_questions(session, environment),
            audit_store.disputes(session, environment),
        )


def _open_questions(
    standing: _Standing, request: Campaign, candidates: Sequence[Pair], doubts: Sequence[Pair]
) -> _Questions:
    """Candidates, audit questions and HITs to ask again, whatever may be posted of them."""
    drawn, again, asked = standing.drawn, standing.again, set(standing.asked)
    missing, disputed = Counter(standing.missing), Counter(standing.disputed)
    disputed.update(pair for pair in doubts if pair in asked)  # who has lost all answers is a candidate again
    may_ask = {*drawn, *candidates} if request.chosen else drawn
    if request.chosen:
        candidates = [*candidates, *sorted(drawn.difference(candidates))]
    if request.drawn or request.chosen:
        again = _again_of(again, may_ask, standing, request)
    for hit in again:
        asked.update(hit.pairs)
        missing.subtract(dict.fromkeys(hit.audits, hit.missing))
        disputed.subtract(dict.fromkeys(hit.pairs, hit.missing))
    pairs = [pair for pair in candidates if pair not in asked and (pair in drawn or not request.drawn)]
    return _Questions(
        pairs=sorted(pairs, key=lambda pair: pair not in drawn),
        n_drawn=sum(pair in drawn for pair in pairs),
        # A HIT of several workers gives several answers.
        audits=[pair for pair, count in missing.items() for _ in range(-(-count // request.assignments))],
        again=sorted(again, key=lambda hit: drawn.isdisjoint(hit.pairs)),
        disputed=dict(
            islice(
                ((pair, n) for pair, n in disputed.items() if n > 0),
                0 if request.pilot is not None else request.further,
            )
        ),
    )


def _again_of(
    again: Sequence[HitToReplace], may_ask: Collection[Pair], standing: _Standing, request: Campaign
) -> list[HitToReplace]:
    """What is asked again where not every pair may be.

    A page costs the same however few stand on it. So where only what was drawn is asked, a page that holds more is
    left for later, and its drawn pairs go on new pages together, if these ask as many workers and nobody has answered
    them.
    """
    kept = []
    for hit in again:
        pairs = tuple(pair for pair in hit.pairs if pair in may_ask)
        is_part = len(pairs) < len(hit.pairs)
        is_new = hit.missing <= request.assignments and standing.asked.isdisjoint(pairs)
        if (pairs or hit.audits) and not (request.drawn and is_part and is_new):
            kept.append(dataclasses.replace(hit, pairs=pairs))
    return kept


def asked_of(
    session: Session, request: Campaign, *, again: bool = False
) -> Callable[[Sequence[Pair]], tuple[int, int]]:
    """Of a round's choice: HITs that only ask again, and questions that fill HITs together.

    A choice that stands on a HIT to be asked again comes with it, though it does not fill it. The database is read
    now, and what is returned may be asked about many choices.

    Args:
        again: whether they were chosen to be asked of a further worker.
    """
    standing = _Standing.of(session, request.environment)

    def of(chosen: Sequence[Pair]) -> tuple[int, int]:
        what = _open_questions(standing, request, chosen, chosen if again else ())
        return len(what.again) + pages_again(what.disputed), len(what.pairs) + len(what.audits)

    return of


def _n_asked(hit: HitToReplace) -> int:
    return len(hit.pairs) + len(hit.audits)


def _packed(
    what: _Questions,
    before: Mapping[int, Sequence[HitItem]],
    golds: tuple[Sequence[Pair], Sequence[Pair]],
    overlap: float,
    seed: int,
    *,
    may_meet: bool = False,
) -> tuple[list[Replacement], list[Page[HitItem]]]:
    """The pages that ask HITs again, and new ones, all with controls from ``golds``; see ``_replacement``."""

    def turned(at: int) -> tuple[list[Pair], list[Pair]]:
        return rotated(golds[0], at), rotated(golds[1], at)

    again = [
        _replacement(lost, before[lost.hit.id], turned(at), seed, may_meet)
        for at, lost in enumerate(what.again)
    ]
    fresh = pack(what.pairs, *turned(len(again)), seed=seed, audits=what.audits)
    fresh += pack_overlap(fresh, *turned(len(again)), share=overlap, seed=seed)
    return again, fresh + pack_again(what.disputed, fresh, *turned(len(again)), seed=seed, met=what.met)


def _replacement(
    wanted: HitToReplace,
    before: Sequence[HitItem],
    golds: tuple[Sequence[Pair], Sequence[Pair]],
    seed: int,
    may_meet: bool,
) -> Replacement:
    """The page that asks a HIT's pairs again, in the role that they had and with controls that it did not have.

    Args:
        before: what stands on the HIT.
        may_meet: whether a control that it had may serve where no other can.
    """
    hit = wanted.hit
    met = {item.pair for item in before if item.role.is_gold}
    is_second = any(item.role is PairRole.OVERLAP for item in before)
    positives, negatives = (
        sorted(kind, key=met.__contains__) if may_meet else [pair for pair in kind if pair not in met]
        for kind in golds
    )
    (page,) = pack(wanted.pairs, positives, negatives, seed=seed_of(seed, hit), audits=wanted.audits)
    placed = tuple(
        dataclasses.replace(item, role=PairRole.OVERLAP)
        if is_second and item.role is PairRole.CANDIDATE
        else item
        for item in page.items
    )
    return Replacement(hit, Page(hit.number, placed), wanted.missing)
