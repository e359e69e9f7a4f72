"""Comparisons on pages: who meets whom, sides, controls; for any number of systems and queries."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.campaign.kinds.rankings.controls import known, with_other_controls
from mitl.campaign.kinds.rankings.systems import designed_lists
from mitl.errors import PackingError
from mitl.hits.comparisons import (
    BETTER,
    RANDOM,
    ComparisonControl,
    Meeting,
    meetings,
    pack_comparisons,
    sided,
)
from mitl.records import Comparison, ComparisonRole, Direction, Preference


@st.composite
def rankings(draw):
    """Two to five systems with lists of three of ten items, for up to twelve queries; lists may be alike."""
    names = [f"s{place}" for place in range(draw(st.integers(2, 5)))]
    queries = range(draw(st.integers(1, 12)))
    one_list = st.permutations(range(10)).map(lambda items: tuple(items[:3]))
    return {name: {query: draw(one_list) for query in queries} for name in names}


def controls(count: int) -> list[ComparisonControl]:
    """Controls on queries of their own."""
    return [ComparisonControl(100 + place, (1, 2, 3), (7, 8, 9)) for place in range(count)]


def packed(found, seed=0, *, per_hit=6, n_controls=2):
    """All meetings of these rankings on pages."""
    queries = list(next(iter(found.values())))
    return pack_comparisons(
        sided(meetings(found, queries, seed), (), direction=Direction.T2I, seed=seed),
        controls(8),
        direction=Direction.T2I,
        seed=seed,
        per_hit=per_hit,
        n_controls=n_controls,
    )


@settings(max_examples=40, deadline=None)
@given(found=rankings(), seed=st.integers(0, 5))
def test_every_two_systems_meet_once_on_every_query_unless_their_lists_are_alike(found, seed):
    """Nothing is lost or asked twice, and the items stand under their system's name."""
    asked = [i for page in packed(found, seed) for i in page.items if i.role is ComparisonRole.ASKED]

    expected = {
        (query, frozenset(pair))
        for pair in combinations(found, 2)
        for query in found["s0"]
        if found[pair[0]][query] != found[pair[1]][query]
    }
    assert Counter((item.query_id, frozenset((item.left, item.right))) for item in asked) == Counter(expected)
    for item in asked:
        assert item.left_items == found[item.left][item.query_id]
        assert item.right_items == found[item.right][item.query_id]


@settings(max_examples=40, deadline=None)
@given(found=rankings(), seed=st.integers(0, 5))
def test_either_of_two_systems_is_on_the_left_in_half_of_their_meetings(found, seed):
    """Within one."""
    asked = [i for page in packed(found, seed) for i in page.items if i.role is ComparisonRole.ASKED]

    left = Counter((item.left, item.right) for item in asked)
    for one, other in combinations(found, 2):
        assert abs(left[one, other] - left[other, one]) <= 1


@settings(max_examples=40, deadline=None)
@given(found=rankings(), seed=st.integers(0, 5), step=st.integers(1, 7))
def test_a_study_that_grows_step_by_step_is_balanced_too(found, seed, step):
    """What was asked before counts into the half, so no system keeps a side because each step is small."""
    met, asked = meetings(found, list(found["s0"]), seed), []
    for start in range(0, len(met), step):
        asked += sided(met[start : start + step], asked, direction=Direction.T2I, seed=seed)

    left = Counter((item.left, item.right) for item in asked)
    for one, other in combinations(found, 2):
        assert abs(left[one, other] - left[other, one]) <= 1


@settings(max_examples=40, deadline=None)
@given(found=rankings(), seed=st.integers(0, 5))
def test_every_page_has_its_controls_on_both_sides_and_pages_are_of_nearly_equal_size(found, seed):
    """Who always answers left, right or equal fails one."""
    pages = packed(found, seed)

    sizes = {len(page.items) for page in pages}
    assert not sizes or (max(sizes) <= 6 and max(sizes) - min(sizes) <= 1)
    for number, page in enumerate(pages, 1):
        checks = [item for item in page.items if item.role is ComparisonRole.CONTROL]
        assert page.number == number
        assert [item.place for item in page.items] == list(range(1, len(page.items) + 1))
        assert {item.expected for item in checks} == {Preference.LEFT, Preference.RIGHT}
        for item in checks:
            better = item.left if item.expected is Preference.LEFT else item.right
            assert (better, {item.left, item.right}) == (BETTER, {BETTER, RANDOM})


def test_the_first_part_of_the_meetings_is_spread_evenly():
    """With a limit, every two systems meet equally often, within one."""
    found = {f"s{i}": {q: (i, q + 10) for q in range(20)} for i in range(4)}

    for limit in (1, 7, 50):
        counts = Counter(meeting.systems for meeting in meetings(found, range(20), 0)[:limit])
        assert sum(counts.values()) == limit
        assert max(counts.values()) - min(counts[pair] for pair in combinations(sorted(found), 2)) <= 1


def test_a_query_stands_on_a_page_once_where_that_can_be():
    """Twelve queries, six pairs of systems, pages of eight: no page shows a query twice."""
    found = {f"s{i}": {q: (i, q + 10) for q in range(12)} for i in range(4)}

    for page in packed(found, per_hit=10):
        queries = [item.query_id for item in page.items]
        assert len(set(queries)) == len(queries)


def test_pages_depend_on_the_seed_and_on_nothing_else():
    """The same seed gives the same pages, another one others."""
    found = {f"s{i}": {q: (i, q + 10) for q in range(12)} for i in range(3)}

    assert packed(found, 1) == packed(dict(reversed(found.items())), 1)
    assert packed(found, 1) != packed(found, 2)


@pytest.mark.parametrize(
    ("per_hit", "n_controls", "given", "message"),
    [
        (2, 2, 2, "a HIT of 2 comparisons with 2 controls"),
        (21, 2, 2, "it has 1 to 20"),
        (5, 3, 2, "2 controls, but a HIT has 3"),
    ],
)
def test_pages_without_room_or_controls_are_refused(per_hit, n_controls, given, message):
    """One line says what is wrong."""
    met = sided([Meeting(1, "a", "b", (1,), (2,))], (), direction=Direction.I2T, seed=0)
    with pytest.raises(PackingError, match=message):
        pack_comparisons(
            met, controls(given), direction=Direction.I2T, seed=0, per_hit=per_hit, n_controls=n_controls
        )


def test_the_papers_five_rankings_are_right_where_their_names_say():
    """Eight positives: which ranks hold one, from the paper's appendix D.1; at a rank all share an item."""
    found = designed_lists(range(1, 9), range(11, 19))

    assert {
        name: [rank for rank in range(1, 9) if items[rank - 1] == rank] for name, items in found.items()
    } == {
        "only-1-wrong": [2, 3, 4, 5, 6, 7, 8],
        "only-1-right": [1],
        "1-to-5-wrong": [6, 7, 8],
        "only-5-right": [5],
        "all-wrong": [],
    }
    assert all(item in (rank, rank + 10) for items in found.values() for rank, item in enumerate(items, 1))


def test_with_five_positives_all_wrong_and_one_to_five_wrong_are_the_same():
    """As the paper says of C and E, so that they do not meet."""
    found = designed_lists(range(1, 6), range(11, 16))

    assert found["1-to-5-wrong"] == found["all-wrong"]


def test_a_page_that_asks_again_takes_other_controls_that_fit():
    """Of its direction and length and not known as bad, each once; if possible on a query that it does not ask and with
    the better list on the same side. If there is none, the old one stays."""
    old = Comparison(
        2, ComparisonRole.CONTROL, Direction.T2I, 9, BETTER, RANDOM, (1, 2), (3, 4), Preference.LEFT
    )
    bad, asked_too, fits = (replace(old, query_id=query) for query in (22, 1, 24))
    mirrored = replace(old, query_id=23, expected=Preference.RIGHT)
    page = (replace(asked_too, place=1, role=ComparisonRole.ASKED, expected=None), old)
    shown = [
        old,
        replace(old, query_id=20, direction=Direction.I2T),
        replace(old, query_id=21, left_items=(1, 2, 5), right_items=(3, 4, 6)),
        bad,
        asked_too,
        mirrored,
        fits,
    ]

    for count, taken in ((7, fits), (6, mirrored), (5, asked_too), (4, old)):
        assert with_other_controls(page, shown[:count], {known(bad)}) == (page[0], taken)
    two = (old, replace(old, place=3, query_id=10))
    assert with_other_controls(two, [fits, mirrored], ()) == (fits, replace(mirrored, place=3))
