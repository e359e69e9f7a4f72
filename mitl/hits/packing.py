"""Candidate pairs and gold controls on pages, under invariants that hold for every batch.

Every pair is asked once as a candidate. Every HIT has one gold of each kind. No pair stands twice in a HIT.
Orders come from the seed, so that no worker learns where the controls are.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from mitl.errors import PackingError
from mitl.proposals.sampling import draw_key, pair_name, shuffled_pairs
from mitl.records import HitItem, PackedHit, Pair, PairRole

CANDIDATES_PER_HIT = 18


def hits_needed(pairs: int, candidates_per_hit: int = CANDIDATES_PER_HIT) -> int:
    """How many HITs ask so many pairs once."""
    return -(-pairs // candidates_per_hit)


def pack(
    pairs: Sequence[Pair],
    positives: Sequence[Pair],
    negatives: Sequence[Pair],
    *,
    seed: int,
    candidates_per_hit: int = CANDIDATES_PER_HIT,
) -> list[PackedHit]:
    """The pairs on ceil(n / 18) HITs, each with one gold positive and one gold negative; numbers from 1.

    Candidates are dealt at random, so that pairs of one query spread over workers. The last HIT is filled
    with repeats of pairs from other HITs; a batch of one HIT may be shorter. Golds take turns in
    the order given (``mitl.proposals.sampling`` gives a random one), so that none is used twice before all are
    used once, except where a gold is itself on the page.

    Raises:
        PackingError: a pair is given twice, a kind of gold is missing, or all golds of a kind are on one
        page.
    """
    _check(pairs, positives, negatives, candidates_per_hit)
    dealt = shuffled_pairs(pairs, seed, "candidates")
    pages = [dealt[i : i + candidates_per_hit] for i in range(0, len(dealt), candidates_per_hit)]
    others = dealt[: len(dealt) - len(pages[-1])] if pages else []
    turns = _Turns(positives, negatives)
    return _finish(pages, PairRole.CANDIDATE, others, turns, seed, 1, candidates_per_hit)


def pack_overlap(
    hits: Sequence[PackedHit],
    positives: Sequence[Pair],
    negatives: Sequence[Pair],
    *,
    share: float,
    seed: int,
    candidates_per_hit: int = CANDIDATES_PER_HIT,
) -> list[PackedHit]:
    """Further HITs that ask a random share of the candidates of ``hits`` once more, numbered on from them.

    Their pairs have the role overlap. The last of them is filled with repeats of candidates outside the
    share, as far as there are any. Golds used least in ``hits`` come first,
    else in the order given.

    Raises:
        PackingError: the share is not from 0 to 1, a kind of gold is missing or all of a kind are on one
        page.
    """
    asked = [item.pair for hit in hits for item in hit.items if item.role is PairRole.CANDIDATE]
    chosen = overlap_pairs(asked, share, seed)
    _check(chosen, positives, negatives, candidates_per_hit)
    dealt = shuffled_pairs(chosen, seed, "overlap pages")
    pages = [dealt[i : i + candidates_per_hit] for i in range(0, len(dealt), candidates_per_hit)]
    rest = frozenset(chosen)
    others = [pair for pair in asked if pair not in rest]
    turns = _Turns(positives, negatives, hits)
    first = max((hit.number for hit in hits), default=0) + 1
    return _finish(pages, PairRole.OVERLAP, others, turns, seed, first, candidates_per_hit)


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
    pairs: Sequence[Pair], positives: Sequence[Pair], negatives: Sequence[Pair], candidates_per_hit: int
) -> None:
    if candidates_per_hit < 1:
        raise PackingError(f"{candidates_per_hit} candidates per HIT; there must be at least 1")
    twice = [pair for pair, count in Counter(pairs).items() if count > 1]
    if twice:
        raise PackingError(
            f"{_words(twice[0])} is given {Counter(pairs)[twice[0]]} times; give each pair once"
        )
    for golds, kind in ((positives, "positives"), (negatives, "negatives")):
        if pairs and not golds:
            raise PackingError(f"no gold {kind}, so no HIT could be checked; draw some first")
    both = sorted(frozenset(positives) & frozenset(negatives))
    if both:
        raise PackingError(f"{_words(both[0])} is both a gold positive and a gold negative; withdraw one")


def _finish(
    pages: Sequence[Sequence[Pair]],
    role: PairRole,
    others: Sequence[Pair],
    turns: _Turns,
    seed: int,
    first: int,
    candidates_per_hit: int,
) -> list[PackedHit]:
    """Fill the last page from ``others``, add golds in turn, shuffle each page."""
    hits = []
    for number, page in enumerate(pages, start=first):
        missing = candidates_per_hit - len(page)
        repeats = shuffled_pairs(others, seed, f"repeats of {number}")[:missing] if missing else []
        taken = frozenset((*page, *repeats))
        roles = dict.fromkeys(page, role) | dict.fromkeys(repeats, PairRole.REPEAT)
        for kind in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE):
            roles[turns.next(kind, taken, number)] = kind
        order = sorted(roles, key=lambda pair: draw_key(seed, "places", number, pair_name(pair)))
        items = tuple(HitItem(place, pair, roles[pair]) for place, pair in enumerate(order, start=1))
        hits.append(PackedHit(number, items))
    return hits


class _Turns:
    """Golds of both kinds in queues: who served goes to the end, who stood on the page keeps its turn."""

    def __init__(
        self, positives: Iterable[Pair], negatives: Iterable[Pair], before: Iterable[PackedHit] = ()
    ) -> None:
        served = Counter(item.pair for hit in before for item in hit.items if item.role.is_gold)
        self._queues = {
            kind: deque(sorted(dict.fromkeys(golds), key=served.__getitem__))
            for kind, golds in ((PairRole.GOLD_POSITIVE, positives), (PairRole.GOLD_NEGATIVE, negatives))
        }

    def next(self, kind: PairRole, taken: frozenset[Pair], number: int) -> Pair:
        """The gold whose turn it is on a page that holds ``taken``."""
        queue = self._queues[kind]
        for gold in queue:
            if gold not in taken:
                queue.remove(gold)
                queue.append(gold)
                return gold
        raise PackingError(
            f"each gold of kind {kind.value} is among the pairs of HIT {number}; give more than {len(queue)}"
        )


def _words(pair: Pair) -> str:
    return f"the pair of image {pair.image_id} and caption {pair.caption_id}"
