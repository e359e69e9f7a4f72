"""Candidate pairs, audit questions and gold controls on pages, under invariants that hold for every batch.

Every pair is asked once as a candidate. Every HIT has one gold of each kind. No pair stands twice in a HIT, so the
questions of an audit that ask one pair of several workers stand on different HITs, and beside none of its candidate.
Orders come from the seed, so that no worker learns where the controls are.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from mitl.errors import PackingError
from mitl.proposals.sampling import draw_key, pair_name, shuffled_pairs
from mitl.records import HitItem, Page, Pair, PairRole

CANDIDATES_PER_HIT = 18


def hits_needed(pairs: int) -> int:
    """How many HITs ask so many pairs once."""
    return -(-pairs // CANDIDATES_PER_HIT)


def pack(
    pairs: Sequence[Pair],
    positives: Sequence[Pair],
    negatives: Sequence[Pair],
    *,
    seed: int,
    audits: Sequence[Pair] = (),
) -> list[Page[HitItem]]:
    """The pairs on ceil(n / 18) HITs, each with one gold positive and one gold negative; numbers from 1.

    Candidates and audit questions are dealt at random and alike, so that pairs of one query spread over workers. The
    last HIT is filled with repeats of pairs from other HITs; a batch of one HIT may be shorter. Golds take turns in
    the order given (``mitl.proposals.sampling`` gives a random one), so that none is used twice before all are
    used once, except where a gold is itself on the page.

    Args:
        audits: a pair as often as other workers are to be asked; where the pages are too few to keep these apart,
            there is one more.

    Raises:
        PackingError: a pair is given twice as a candidate, a kind of gold is missing, or a page has to ask
        all golds of a kind.
    """
    _check(pairs, positives, negatives, asks=bool(pairs or audits))
    pages = _dealt(pairs, audits, seed)
    audited = frozenset(audits)
    others = [pair for pair in pairs if pair not in audited]
    return _finish(pages, others, _Turns(positives, negatives), seed, 1)


def _dealt(pairs: Sequence[Pair], audits: Sequence[Pair], seed: int) -> list[dict[Pair, PairRole]]:
    """The questions in random order, page by page, none beside another of its pair."""
    copies: Counter[Pair] = Counter()
    keyed = [(draw_key(seed, "candidates", pair_name(pair)), pair, PairRole.CANDIDATE) for pair in pairs]
    for pair in audits:
        copies[pair] += 1
        keyed.append((draw_key(seed, "audits", copies[pair], pair_name(pair)), pair, PairRole.AUDIT))
    waiting = deque((pair, role) for _, pair, role in sorted(keyed, key=lambda entry: entry[0]))
    pages: list[dict[Pair, PairRole]] = [{} for _ in range(hits_needed(len(waiting)))]
    put_off: deque[tuple[Pair, PairRole]] = deque()
    for page in pages:
        for queue in (put_off, waiting):
            for _ in range(len(queue)):
                if len(page) == CANDIDATES_PER_HIT:
                    break
                pair, role = queue.popleft()
                if pair in page:
                    put_off.append((pair, role))
                else:
                    page[pair] = role
    for pair, role in put_off:
        _place(pair, role, pages)
    return pages


def _place(pair: Pair, role: PairRole, pages: list[dict[Pair, PairRole]]) -> None:
    """Put a question where its pair does not stand yet: on a page with room, for another question, or on a new page."""
    roomy = [page for page in pages if len(page) < CANDIDATES_PER_HIT]
    free = [page for page in pages if pair not in page]
    for page in roomy:
        if pair not in page:
            page[pair] = role
            return
    moves = ((page, other, room) for room in roomy for page in free for other in page if other not in room)
    move = next(moves, None)
    if move is None:
        pages.append({pair: role})
        return
    page, other, room = move
    room[other] = page.pop(other)
    page[pair] = role


def pack_overlap(
    hits: Sequence[Page[HitItem]],
    positives: Sequence[Pair],
    negatives: Sequence[Pair],
    *,
    share: float,
    seed: int,
) -> list[Page[HitItem]]:
    """Further HITs that ask a random share of the candidates of ``hits`` once more, numbered on from them.

    Their pairs have the role overlap. The last of them is filled with repeats of candidates outside the
    share, as far as there are any. Golds used least in ``hits`` come first,
    else in the order given.

    Raises:
        PackingError: the share is not from 0 to 1, a kind of gold is missing or a page has
        to ask all of a kind.
    """
    asked = [item.pair for hit in hits for item in hit.items if item.role is PairRole.CANDIDATE]
    chosen = overlap_pairs(asked, share, seed)
    _check(chosen, positives, negatives, asks=bool(chosen))
    dealt = shuffled_pairs(chosen, seed, "overlap pages")
    rest = frozenset(chosen)
    others = [pair for pair in asked if pair not in rest]
    return _finish(_overlaps(dealt), others, _Turns(positives, negatives, hits), seed, _after(hits))


def pack_again(
    wanted: Mapping[Pair, int],
    hits: Sequence[Page[HitItem]],
    positives: Sequence[Pair],
    negatives: Sequence[Pair],
    *,
    seed: int,
    met: Mapping[Pair, Set[str]] | None = None,
) -> list[Page[HitItem]]:
    """Further HITs that ask pairs of so many further workers, each time on another page, numbered on from ``hits``.

    Their pairs have the role overlap. Those that the same people answered share pages, as far as they fill some, so
    that these can be kept from them.

    Args:
        met: pair → who has answered it.

    Raises:
        PackingError: a kind of gold is missing or a page has to ask all of a kind.
    """
    _check(list(wanted), positives, negatives, asks=bool(wanted))
    pages: list[dict[Pair, PairRole]] = []
    for turn in range(max(wanted.values(), default=0)):
        dealt = shuffled_pairs([pair for pair in wanted if wanted[pair] > turn], seed, f"again {turn}")
        pages += _overlaps(_by_people(dealt, met or {}))
    return _finish(pages, (), _Turns(positives, negatives, hits), seed, _after(hits))


def _by_people(dealt: Sequence[Pair], met: Mapping[Pair, Set[str]]) -> list[Pair]:
    """First those that fill whole pages with what the same people have met, then the rest of each."""
    groups: dict[Set[str], list[Pair]] = defaultdict(list)
    for pair in dealt:
        groups[frozenset(met.get(pair, ()))].append(pair)
    whole = {who: len(pairs) - len(pairs) % CANDIDATES_PER_HIT for who, pairs in groups.items()}
    return [
        *(pair for who, pairs in groups.items() for pair in pairs[: whole[who]]),
        *(pair for who, pairs in groups.items() for pair in pairs[whole[who] :]),
    ]


def _overlaps(dealt: Sequence[Pair]) -> list[dict[Pair, PairRole]]:
    starts = range(0, len(dealt), CANDIDATES_PER_HIT)
    return [dict.fromkeys(dealt[start : start + CANDIDATES_PER_HIT], PairRole.OVERLAP) for start in starts]


def _after(hits: Sequence[Page[HitItem]]) -> int:
    return max((hit.number for hit in hits), default=0) + 1


def pages_again(wanted: Mapping[Pair, int]) -> int:
    """How many HITs `pack_again` makes."""
    turns = range(max(wanted.values(), default=0))
    return sum(hits_needed(sum(count > turn for count in wanted.values())) for turn in turns)


def overlap_pairs(pairs: Sequence[Pair], share: float, seed: int) -> list[Pair]:
    """A random share of the distinct pairs, rounded up to whole pairs, ascending.

    Raises:
        PackingError: the share is not from 0 to 1.
    """
    if not 0 <= share <= 1:
        raise PackingError(f"overlap is {share}, but a share lies between 0 and 1")
    # A share of 0.07 of 100 pairs is 7, though the floating product is a little more.
    count = math.ceil(round(share * len(pairs), 9))
    return sorted(shuffled_pairs(pairs, seed, "overlap")[:count])


def _check(
    pairs: Sequence[Pair],
    positives: Sequence[Pair],
    negatives: Sequence[Pair],
    *,
    asks: bool,
) -> None:
    twice = [pair for pair, count in Counter(pairs).items() if count > 1]
    if twice:
        raise PackingError(
            f"{words(twice[0])} is given {Counter(pairs)[twice[0]]} times; give each pair once"
        )
    for golds, kind in ((positives, "positives"), (negatives, "negatives")):
        if asks and not golds:
            raise PackingError(f"no gold {kind}, so no HIT could be checked; draw some first")
    both = sorted(frozenset(positives) & frozenset(negatives))
    if both:
        raise PackingError(f"{words(both[0])} is both a gold positive and a gold negative; withdraw one")


def _finish(
    pages: Sequence[Mapping[Pair, PairRole]],
    others: Sequence[Pair],
    turns: _Turns,
    seed: int,
    first: int,
) -> list[Page[HitItem]]:
    """Fill short pages from ``others``, add golds in turn, shuffle each page."""
    hits = []
    for number, page in enumerate(_parted(pages, turns.golds.values()), start=first):
        missing = CANDIDATES_PER_HIT - len(page)
        elsewhere = [pair for pair in others if pair not in page] if missing else []
        repeats = shuffled_pairs(elsewhere, seed, f"repeats of {number}")
        golds = {turns.next(kind, page, repeats[:missing]): kind for kind in turns.golds}
        repeats = [pair for pair in repeats if pair not in golds][:missing]
        roles = dict(page) | dict.fromkeys(repeats, PairRole.REPEAT) | golds
        order = sorted(roles, key=lambda pair: draw_key(seed, "places", number, pair_name(pair)))
        items = tuple(HitItem(place, pair, roles[pair]) for place, pair in enumerate(order, start=1))
        hits.append(Page(number, items))
    return hits


def _parted(
    pages: Sequence[Mapping[Pair, PairRole]], kinds: Collection[frozenset[Pair]]
) -> list[dict[Pair, PairRole]]:
    """The pages; one that asks all golds of a kind, which leaves none to check it, gives a question to another page."""
    parted = [dict(page) for page in pages]
    for page in parted:
        while (move := next(_moves(page, parted, kinds), None)) is not None:
            other, gold, back = move
            other[gold] = page.pop(gold)
            if back is not None:
                page[back] = other.pop(back)
    return parted


def _moves(
    page: dict[Pair, PairRole], pages: Sequence[dict[Pair, PairRole]], kinds: Collection[frozenset[Pair]]
) -> Iterator[tuple[dict[Pair, PairRole], Pair, Pair | None]]:
    """Another page, a gold that it may take, and what it gives back if anything; fewer kinds are then used up."""

    def used_up(pairs: Set[Pair]) -> int:
        return sum(kind <= pairs for kind in kinds)

    for gold in [pair for pair in page if any(pair in kind <= page.keys() for kind in kinds)]:
        for other in (other for other in pages if gold not in other):
            before = used_up(page.keys()) + used_up(other.keys())
            room = [None] if len(other) < CANDIDATES_PER_HIT else []
            for back in [*(pair for pair in other if pair not in page), *room]:
                change = {gold} if back is None else {gold, back}
                if used_up(page.keys() ^ change) + used_up(other.keys() ^ change) < before:
                    yield other, gold, back


class _Turns:
    """Golds of both kinds in queues: who served goes to the end, who stood on the page keeps its turn."""

    def __init__(
        self, positives: Iterable[Pair], negatives: Iterable[Pair], before: Iterable[Page[HitItem]] = ()
    ) -> None:
        served = Counter(item.pair for hit in before for item in hit.items if item.role.is_gold)
        self._queues = {
            kind: deque(sorted(dict.fromkeys(golds), key=served.__getitem__))
            for kind, golds in ((PairRole.GOLD_POSITIVE, positives), (PairRole.GOLD_NEGATIVE, negatives))
        }
        self.golds = {kind: frozenset(queue) for kind, queue in self._queues.items()}

    def next(self, kind: PairRole, page: Collection[Pair], repeats: Collection[Pair]) -> Pair:
        """The gold whose turn it is; one of the page's repeats, which then gives way, only where no other is left."""
        queue = self._queues[kind]
        taken = frozenset((*page, *repeats))
        for standing in (taken, page):
            for gold in queue:
                if gold not in standing:
                    queue.remove(gold)
                    queue.append(gold)
                    return gold
        name, remedy = _REMEDIES[kind]
        raise PackingError(
            f"one HIT asks every gold {name} there is ({len(queue):,}), so none is left to check it; ask about "
            f"fewer pairs at once, or use a data set with {remedy}"
        )


_REMEDIES = {
    PairRole.GOLD_POSITIVE: ("positive", "more originals"),
    PairRole.GOLD_NEGATIVE: ("negative", "a larger gallery"),
}


def words(pair: Pair) -> str:
    """A pair as messages call it."""
    return f"the pair of image {pair.image_id} and caption {pair.caption_id}"
