"""Packing: every pair once, one gold of each kind a HIT, nothing to tell them apart by."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import combinations, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from suite_kit import examples

from mitl.errors import PackingError
from mitl.hits import packing
from mitl.hits.packing import (
    CANDIDATES_PER_HIT,
    hits_needed,
    overlap_pairs,
    pack,
    pack_again,
    pack_overlap,
    pages_again,
)
from mitl.records import HitItem, Page, Pair, PairRole

PAIR = st.builds(Pair, st.integers(0, 9), st.integers(0, 30))
POSITIVES = [Pair(1000 + i, i) for i in range(300)]
NEGATIVES = [Pair(2000 + i, i) for i in range(300)]


def some_pairs(count: int) -> list[Pair]:
    return [Pair(i // 5, i) for i in range(count)]


def roles(hit: Page[HitItem], *wanted: PairRole) -> list[Pair]:
    return [item.pair for item in hit.items if item.role in wanted]


@settings(max_examples=150, deadline=None)
@given(
    pairs=st.lists(PAIR, unique=True, max_size=70),
    golds=st.lists(
        PAIR | st.builds(Pair, st.integers(50, 60), st.integers(0, 5)), unique=True, min_size=2, max_size=40
    ),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_the_invariants_of_packing_hold(pairs, golds, seed, data):
    """Whatever the pairs, golds (also golds that are candidates) and seed."""
    cut = data.draw(st.integers(1, len(golds) - 1))
    positives, negatives = golds[:cut], golds[cut:]
    try:
        hits = pack(pairs, positives, negatives, seed=seed)
    except PackingError as error:
        # Only ever where every gold of a kind could stand on one page.
        assert "none is left to check it" in str(error)
        assert min(len(set(side) - set(pairs)) for side in (positives, negatives)) == 0
        return

    assert len(hits) == hits_needed(len(pairs)) == -(-len(pairs) // 18)
    assert [hit.number for hit in hits] == list(range(1, len(hits) + 1))
    asked = Counter(pair for hit in hits for pair in roles(hit, PairRole.CANDIDATE))
    assert asked == Counter(pairs)
    for place, hit in enumerate(hits):
        on_page = [item.pair for item in hit.items]
        assert len(on_page) == len(set(on_page))
        assert [item.place for item in hit.items] == list(range(1, len(on_page) + 1))
        (positive,) = roles(hit, PairRole.GOLD_POSITIVE)
        (negative,) = roles(hit, PairRole.GOLD_NEGATIVE)
        assert positive in positives
        assert negative in negatives
        repeats = roles(hit, PairRole.REPEAT)
        assert len(hit.items) == 20 or len(hits) == 1
        assert not repeats or place == len(hits) - 1
        elsewhere = {p for other in hits if other is not hit for p in roles(other, PairRole.CANDIDATE)}
        assert set(repeats) <= elsewhere
    assert hits == pack(pairs[::-1], positives, negatives, seed=seed)


def test_the_papers_pairs_make_2580_hits():
    """46,424 pairs at 18 a HIT."""
    assert hits_needed(46_424) == 2580
    assert len(pack(some_pairs(1842), POSITIVES, NEGATIVES, seed=0)) == 103


def test_a_short_last_hit_is_filled_and_a_single_one_is_not():
    """20 pairs: 18 and 2 with 16 repeats; 5 pairs: one HIT of 5 and two golds."""
    last = pack(some_pairs(20), POSITIVES, NEGATIVES, seed=0)[-1]
    (only,) = pack(some_pairs(5), POSITIVES, NEGATIVES, seed=0)

    assert Counter(item.role for item in last.items) == {
        PairRole.CANDIDATE: 2,
        PairRole.REPEAT: 16,
        PairRole.GOLD_POSITIVE: 1,
        PairRole.GOLD_NEGATIVE: 1,
    }
    assert len(only.items) == 7


def test_golds_serve_in_the_order_given():
    """The first HIT takes the first gold of each kind, and so on: who draws them decides their order."""
    hits = pack(some_pairs(90), POSITIVES[7:], NEGATIVES[3:], seed=2)

    assert [roles(hit, PairRole.GOLD_POSITIVE) for hit in hits] == [[gold] for gold in POSITIVES[7:12]]
    assert [roles(hit, PairRole.GOLD_NEGATIVE) for hit in hits] == [[gold] for gold in NEGATIVES[3:8]]


@pytest.mark.parametrize("count", [3, 50, 103, 300])
def test_golds_are_used_as_evenly_as_can_be(count):
    """No gold is used twice before each is used once; uses differ by one at most."""
    hits = pack(some_pairs(1842), POSITIVES[:count], NEGATIVES[:count], seed=5)

    for role in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE):
        uses = Counter(pair for hit in hits for pair in roles(hit, role))
        assert sum(uses.values()) == 103
        assert max(uses.values()) == -(-103 // count)
        assert len(uses) == min(count, 103)


def test_golds_stand_at_every_place_equally_often():
    """Over 1,000 HITs each of the 20 places holds about 50 golds of a kind (five standard deviations)."""
    hits = pack(some_pairs(18_000), POSITIVES, NEGATIVES, seed=1)

    for role in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE):
        places = Counter(item.place for hit in hits for item in hit.items if item.role is role)
        assert set(places) == set(range(1, 21))
        assert all(abs(places[place] - 50) < 5 * (1000 * 0.05 * 0.95) ** 0.5 for place in places)


def test_pairs_of_one_query_are_spread_over_hits():
    """Five captions of an image seldom share a page when there are a hundred pages."""
    hits = pack(some_pairs(1800), POSITIVES, NEGATIVES, seed=0)

    together = Counter(pair.image_id for pair in some_pairs(1800))
    most = max(max(Counter(p.image_id for p in roles(hit, PairRole.CANDIDATE)).values()) for hit in hits)
    assert together[0] == 5
    assert most <= 3


def test_another_seed_packs_otherwise():
    """The same seed gives the same pages, another one others."""
    packs = [pack(some_pairs(90), POSITIVES, NEGATIVES, seed=seed) for seed in (0, 1, 0)]

    assert packs[0] == packs[2] != packs[1]


def test_nothing_to_ask_is_no_hit():
    """Without pairs no page is made and no gold is needed."""
    assert pack([], [], [], seed=0) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pairs": [Pair(1, 2), Pair(1, 2)]},
            "^the pair of image 1 and caption 2 is given 2 times; give each pair once$",
        ),
        ({"positives": []}, "^no gold positives, so no HIT could be checked; draw some first$"),
        ({"negatives": []}, "^no gold negatives, so no HIT could be checked; draw some first$"),
        (
            {"negatives": [POSITIVES[0]]},
            "image 1000 and caption 0 is both a gold positive and a gold negative",
        ),
        (
            {"positives": [Pair(0, 0)]},
            r"^one HIT asks every gold positive there is \(1\), so none is left to check it; ask about "
            "fewer pairs at once, or use a data set with more originals$",
        ),
    ],
)
def test_what_cannot_be_packed_is_said_in_one_line(change, message):
    """Each message says what is wrong with the pairs or the golds."""
    call = {"pairs": some_pairs(4), "positives": POSITIVES, "negatives": NEGATIVES, "seed": 0} | change

    with pytest.raises(PackingError, match=message):
        pack(call.pop("pairs"), call.pop("positives"), call.pop("negatives"), **call)


TINY = st.builds(Pair, st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=examples(60, 200), deadline=None)
@given(
    wanted=st.dictionaries(TINY, st.integers(1, 2), max_size=5),
    audited=st.booleans(),
    golds=st.lists(TINY, unique=True, min_size=2, max_size=5),
    at_once=st.sampled_from([2, 3]),
    data=st.data(),
)
def test_pages_are_found_wherever_there_are_any(wanted, audited, golds, at_once, data):
    """On sets so tiny that every way to deal questions can be tried; of pages of 18, too few could be."""
    cut = data.draw(st.integers(1, len(golds) - 1))
    sides = golds[:cut], golds[cut:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "CANDIDATES_PER_HIT", at_once)
        if audited:
            counts, n_pages = wanted, pages_again(wanted)
            call = partial(pack_again, wanted, [], *sides, seed=0)
        else:
            counts, n_pages = dict.fromkeys(wanted, 1), hits_needed(len(wanted))
            call = partial(pack, list(wanted), *sides, seed=0)
        ways = product(*(combinations(range(n_pages), count) for count in counts.values()))
        dealt = (
            [{p for p, on in zip(counts, way, strict=True) if page in on} for page in range(n_pages)]
            for way in ways
        )
        is_possible = any(
            all(
                1 <= len(page) <= at_once and not any(page.issuperset(side) for side in sides)
                for page in pages
            )
            for pages in dealt
        )
        if not is_possible:
            with pytest.raises(PackingError, match="so none is left to check it"):
                call()
            return
        hits = call()

    asked = Counter(pair for hit in hits for pair in roles(hit, PairRole.CANDIDATE, PairRole.OVERLAP))
    assert (len(hits), asked) == (n_pages, counts)
    for hit in hits:
        assert len({item.pair for item in hit.items}) == len(hit.items) <= at_once + 2
        assert [len(roles(hit, kind)) for kind in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)] == [1, 1]


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 120),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32),
    golds=st.integers(1, 20),
)
def test_overlap_asks_the_share_once_more(count, share, seed, golds):
    """Numbers go on, each chosen pair is asked once, the last page is filled from outside the share."""
    pairs, positives, negatives = some_pairs(count), POSITIVES[:golds], NEGATIVES[:golds]
    hits = pack(pairs, positives, negatives, seed=seed)

    extra = pack_overlap(hits, positives, negatives, share=share, seed=seed)

    chosen = overlap_pairs(pairs, share, seed)
    assert share * count - 1e-6 <= len(chosen) < share * count + 1
    assert [hit.number for hit in extra] == list(
        range(len(hits) + 1, len(hits) + 1 + hits_needed(len(chosen)))
    )
    assert sorted(p for hit in extra for p in roles(hit, PairRole.OVERLAP)) == chosen
    for hit in extra:
        on_page = [item.pair for item in hit.items]
        assert len(on_page) == len(set(on_page))
        assert not set(roles(hit, PairRole.REPEAT)) & set(chosen)
        assert set(roles(hit, PairRole.REPEAT)) <= set(pairs)
        assert len(roles(hit, PairRole.GOLD_POSITIVE)) == len(roles(hit, PairRole.GOLD_NEGATIVE)) == 1
        assert len(on_page) == 20 or count - len(chosen) < 18
    uses = Counter(pair for hit in [*hits, *extra] for pair in roles(hit, PairRole.GOLD_POSITIVE))
    assume(uses)
    assert max(uses.values()) == -(-(len(hits) + len(extra)) // golds)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_an_overlap_that_is_no_share_is_refused(share):
    """Percent are not shares."""
    with pytest.raises(PackingError, match="but a share lies between 0 and 1"):
        overlap_pairs(some_pairs(5), share, 0)


def test_the_default_page_is_the_papers():
    """18 candidates and two golds."""
    assert CANDIDATES_PER_HIT == 18


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    pairs=st.lists(PAIR, unique=True, max_size=40),
    wanted=st.dictionaries(PAIR, st.integers(1, 3) | st.integers(4, 12), max_size=40),
    seed=st.integers(0, 2**32),
)
def test_audit_questions_stand_apart(pairs, wanted, seed):
    """A pair as often as it is wanted, each time on another page, and beside none of its candidate or its repeats."""
    audits = [pair for pair, count in wanted.items() for _ in range(count)]

    hits = pack(pairs, POSITIVES, NEGATIVES, seed=seed, audits=audits)

    assert Counter(pair for hit in hits for pair in roles(hit, PairRole.CANDIDATE)) == Counter(pairs)
    assert Counter(pair for hit in hits for pair in roles(hit, PairRole.AUDIT)) == Counter(audits)
    for hit in hits:
        on_page = [item.pair for item in hit.items]
        assert len(on_page) == len(set(on_page)) <= 20
        assert len(roles(hit, PairRole.GOLD_POSITIVE)) == len(roles(hit, PairRole.GOLD_NEGATIVE)) == 1
        assert not set(roles(hit, PairRole.REPEAT)) & set(audits)
    # The fewest pages that can keep what is asked of one pair apart.
    asked = Counter(audits) + Counter(pairs)
    assert len(hits) == max([hits_needed(asked.total()), *asked.values()])


def test_audit_questions_are_dealt_as_candidates_are():
    """They are on every page, in its share, and at every place; so a page tells no worker what it asks."""
    pairs, audits = some_pairs(1800), [Pair(500 + i, i) for i in range(900)]
    hits = pack(pairs, POSITIVES, NEGATIVES, seed=0, audits=audits)

    shares = [len(roles(hit, PairRole.AUDIT)) for hit in hits]
    assert min(shares) >= 1
    assert max(shares) <= 14
    places = Counter(item.place for hit in hits for item in hit.items if item.role is PairRole.AUDIT)
    assert set(places) == set(range(1, 21))


def test_without_an_audit_pages_are_as_they_were():
    """An audit elsewhere changes nothing: the same data and seed make the same pages."""
    pairs = some_pairs(100)

    hits = pack(pairs, POSITIVES, NEGATIVES, seed=3)

    assert [item.pair for item in hits[0].items][:4] == [
        Pair(1, 9),
        Pair(2000, 0),
        Pair(5, 27),
        Pair(1000, 0),
    ]


def test_audit_questions_need_controls_too():
    """A page of audit questions alone is checked as any."""
    with pytest.raises(PackingError, match="no gold positives"):
        pack([], [], NEGATIVES, seed=0, audits=[Pair(1, 1)])
