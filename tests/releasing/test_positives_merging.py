"""Merging judgements, CxC ratings and original annotations into positives."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import PAIRS, RATINGS, RULES, Conflict, MergeInput, P, merge, merge_one, positives_by_query

from mitl.errors import ReleaseError
from mitl.judgements.aggregators import Aggregator
from mitl.positives.exclusions import Exclusions
from mitl.positives.loading import official_positives
from mitl.positives.merging import MergeRecipe, MergeRules
from mitl.records import Direction, Judgement, Label, Pair, PositiveSource

YES, WEAK_YES, WEAK_NO, NO = Label
JUDGED, CXC, ORIGINAL, MACHINE, AUDIT = PositiveSource

JUDGEMENTS = st.lists(
    st.builds(
        Judgement,
        PAIRS,
        st.sampled_from(["A1", "A2", "A3"]),
        st.sampled_from(Label),
        usable=st.sampled_from([True, True, False]),
    ),
    max_size=12,
)


needs_official = pytest.mark.skipif(
    importlib.util.find_spec("eccv_caption") is None, reason="the package eccv_caption is missing"
)


@pytest.mark.parametrize(
    ("labels", "score", "original", "with_originals", "sources"),
    [
        ([YES], None, False, False, (JUDGED,)),
        ([WEAK_YES], 2.0, False, False, (JUDGED,)),
        ([YES], 4.0, True, False, (JUDGED, CXC, ORIGINAL)),
        ([], 3.0, False, False, (CXC,)),
        ([], 3.0, True, False, (CXC, ORIGINAL)),
        ([], None, True, True, (ORIGINAL,)),
        ([], 2.9, False, False, None),
        ([], None, True, False, None),
        ([], 2.9, True, True, None),
        ([NO], 5.0, True, True, None),
        ([WEAK_NO], 5.0, False, False, None),
        ([NO], None, True, True, None),
        ([YES, NO], 5.0, False, False, None),
    ],
)
def test_a_judgement_beats_a_rating_beats_an_original(labels, score, original, with_originals, sources):
    """One pair under every constellation; a pair that people refused is not revived."""
    merged = merge_one(labels, score, original, MergeRules(with_originals=with_originals))

    assert [positive.sources for positive in merged.positives] == ([sources] if sources else [])


def test_a_positive_keeps_its_label_its_share_of_yes_and_who_proposed_it():
    """Two of three judges say yes in some form."""
    merged = merge_one([YES, YES, NO], found_by={P: ["vsrn", "clip", "vsrn"]})

    (positive,) = merged.positives
    assert (positive.label, positive.n_judgements, positive.probability) == (YES, 3, 2 / 3)
    assert positive.annotators == ("clip", "vsrn")


@pytest.mark.parametrize("threshold", [-0.1, 5.1, float("nan")])
def test_a_threshold_off_the_scale_of_ratings_is_refused(threshold):
    """It would take all ratings or none without a word."""
    with pytest.raises(ReleaseError, match="ratings go from 0 to 5"):
        MergeRules(cxc_threshold=threshold)


def test_the_default_repairs_and_official_rules_follow_the_paper():
    """Originals stay unless the official tool's result is wanted; the ends of the scale are thresholds as well."""
    assert MergeRules().with_originals and MergeRules().recipe is MergeRecipe.REPAIR
    assert not MergeRules(official=True).with_originals
    assert MergeRules(official=True).recipe is MergeRules(with_originals=False).recipe is MergeRecipe.PAPER
    assert (MergeRules(cxc_threshold=0).cxc_threshold, MergeRules(cxc_threshold=5).cxc_threshold) == (0, 5)
    with pytest.raises(ReleaseError, match="a rule of their own for several answers"):
        MergeRules(official=True, aggregator=Aggregator.DAWID_SKENE)


def test_strict_wants_yes_and_a_rating_does_not_lift_a_weak_yes():
    """The judgement still beats the rating; a rated pair that nobody judged stays."""
    strict = MergeRules(strict=True)

    assert not merge_one([WEAK_YES], 5.0, rules=strict).positives
    assert merge_one([YES], rules=strict).positives
    assert merge_one([], 3.0, rules=strict).positives


def test_conflicts_say_who_decided_and_what_became_of_the_pair():
    """Agreement is not a conflict; every disagreement is one."""
    assert merge_one([YES], 4.0, True).conflicts == ()
    assert merge_one([NO], 2.0).conflicts == ()
    assert merge_one([NO], 4.0, True).conflicts == (Conflict(P, NO, 1, 4.0, True, JUDGED, False),)
    assert merge_one([YES], 2.0).conflicts == (Conflict(P, YES, 1, 2.0, False, JUDGED, True),)
    assert merge_one([], 2.0, True).conflicts == (Conflict(P, None, 0, 2.0, True, CXC, False),)


def test_the_highest_of_several_ratings_counts():
    """A pair can be rated under two sampling methods."""
    data = MergeInput(ratings=[(P, 3.1), (P, 2.0)])

    assert [positive.pair for positive in merge(data).positives] == [P]


@pytest.mark.parametrize(
    "exclusions",
    [
        Exclusions(captions=frozenset({2})),
        Exclusions(images=frozenset({1})),
        Exclusions(pairs=frozenset({P})),
    ],
)
def test_exclusion_lists_take_out_positives_of_every_source(exclusions):
    """What was taken out is told; it is not a conflict any more."""
    for constellation in ({"labels": [YES], "score": 1.0}, {"score": 5.0}):
        merged = merge_one(**constellation, exclusions=exclusions)
        assert (merged.positives, merged.conflicts, merged.excluded) == ((), (), (P,))
    assert merge_one([NO], exclusions=exclusions).excluded == ()


def test_official_filters_reproduce_the_released_tools_slips():
    """Any yes makes a positive, CxC stays though refused, and single wrong pairs stay too."""
    official = MergeRules(official=True)
    wrong = Exclusions(pairs=frozenset({P}))

    assert merge_one([NO, NO, WEAK_YES], rules=official).positives[0].label is WEAK_YES
    (kept,) = merge_one([NO], 4.0, rules=official, exclusions=wrong).positives
    assert (kept.label, kept.sources, kept.probability) == (None, (CXC,), 0.0)
    assert merge_one([NO], 4.0, rules=official).conflicts == (Conflict(P, NO, 1, 4.0, False, CXC, True),)
    assert merge_one([YES], 2.0, rules=official).conflicts == (Conflict(P, YES, 1, 2.0, False, JUDGED, True),)
    with pytest.raises(ReleaseError, match="leaves originals out"):
        MergeRules(official=True, with_originals=True)


def test_official_filters_list_only_queries_with_a_verified_and_a_cxc_positive():
    """Image 1 has both, image 2 only a judgement, image 3 only a rating."""
    data = MergeInput(
        [Judgement(Pair(1, 5), "A1", YES), Judgement(Pair(2, 5), "A1", YES)],
        [(Pair(1, 6), 4.0), (Pair(3, 6), 4.0)],
    )
    queries = {Direction.I2T: (1, 2, 3), Direction.T2I: (5, 6)}

    listed = positives_by_query(merge(data, MergeRules(official=True)), queries)
    assert listed == {Direction.I2T: {1: (5, 6)}, Direction.T2I: {}}
    assert positives_by_query(merge(data), queries)[Direction.I2T] == {1: (5, 6), 2: (5,), 3: (6,)}


def test_only_sampled_queries_are_listed():
    """Caption 2 is not a query, so only the image's list holds the pair."""
    listed = positives_by_query(merge_one([YES]), {Direction.I2T: (1, 9)})

    assert listed == {Direction.I2T: {1: (2,)}, Direction.T2I: {}}


@settings(deadline=None)
@given(JUDGEMENTS, RATINGS, st.lists(PAIRS, max_size=6), RULES, st.data())
def test_merging_does_not_depend_on_any_order(judgements, ratings, originals, rules, data):
    """Shuffled inputs give the same positives, conflicts and exclusions."""
    found_by = {pair: ["b", "a"] for pair in originals}
    exclusions = Exclusions(frozenset({0}), frozenset({3}), frozenset({P}))
    merged = merge(MergeInput(judgements, ratings, originals, found_by, exclusions), rules)
    shuffled = MergeInput(
        data.draw(st.permutations(judgements)),
        data.draw(st.permutations(ratings)),
        data.draw(st.permutations(originals)),
        {pair: ["a", "b"] for pair in reversed(originals)},
        exclusions,
    )

    assert merge(shuffled, rules) == merged


@settings(deadline=None)
@given(JUDGEMENTS, RATINGS, st.lists(PAIRS, max_size=6), RULES)
def test_positives_never_hold_what_is_excluded_or_judged_negative(judgements, ratings, originals, rules):
    """Whatever the rules, except that the official ones let CxC revive a refused pair."""
    exclusions = Exclusions(captions=frozenset({0}), images=frozenset({3}))
    merged = merge(MergeInput(judgements, ratings, originals, exclusions=exclusions), rules)
    refused = {c.pair for c in merged.conflicts if c.label is not None and not c.label.is_positive}

    for positive in merged.positives:
        assert positive.pair.caption_id != 0 and positive.pair.image_id != 3
        assert positive.pair not in refused or rules.official
        assert positive.sources
        assert (positive.label is not None) == (JUDGED in positive.sources)


def read_sits(shared_data):
    """CxC's ratings of image-caption pairs of the test split."""
    with (shared_data / "cxc" / "sits_test.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            image = int(row["image"].removesuffix(".jpg").rsplit("_", 1)[1])
            yield Pair(image, int(row["caption"].rsplit(":", 1)[1])), float(row["agg_score"])


def as_pairs(released, direction):
    return {Pair(int(image), int(caption)) for image, caption in released.pairs(direction)}


@needs_official
@pytest.mark.shared
def test_cxc_alone_gives_the_official_cxc_positives(shared_data):
    """35,585 pairs of 5,000 images and 24,972 captions, equal to the official JSONs."""
    official = official_positives("cxc")
    merged = merge(MergeInput(ratings=read_sits(shared_data)))
    pairs = {positive.pair for positive in merged.positives}

    assert len(pairs) == 35_585
    assert pairs == as_pairs(official, Direction.I2T) == as_pairs(official, Direction.T2I)


@needs_official
@pytest.mark.shared
def test_official_filters_give_back_the_released_positives(shared_data):
    """Taking those as judgements, the one pair that should have gone stays only under the official rules."""
    official = official_positives("eccv")
    released = {direction: as_pairs(official, direction) for direction in Direction}
    wrong = Pair(204640, 359139)
    data = MergeInput(
        [Judgement(pair, "A1", YES) for pair in released[Direction.I2T] | released[Direction.T2I]],
        list(read_sits(shared_data)),
        exclusions=Exclusions(frozenset({462530}), frozenset({578492}), frozenset({wrong})),
    )
    queries = {d: tuple(map(int, official.by_query[d])) for d in Direction}

    for rules, missing in ((MergeRules(official=True), set()), (MergeRules(), {wrong})):
        listed = positives_by_query(merge(data, rules), queries)
        i2t = {Pair(image, caption) for image, found in listed[Direction.I2T].items() for caption in found}
        t2i = {Pair(image, caption) for caption, found in listed[Direction.T2I].items() for image in found}
        assert i2t == released[Direction.I2T] - missing
        assert t2i == released[Direction.T2I] - missing
    without = dataclasses.replace(data, exclusions=Exclusions(images=frozenset({578492})))
    assert Pair(325211, 462530) in {positive.pair for positive in merge(without).positives}


@pytest.mark.parametrize(
    ("labels", "score", "rules", "negative"),
    [
        ([NO], None, MergeRules(), NO),
        ([WEAK_NO, NO, NO], 5.0, MergeRules(), NO),
        ([WEAK_YES], None, MergeRules(strict=True), None),
        ([YES], None, MergeRules(), None),
        ([], 1.0, MergeRules(), None),
        ([NO], 5.0, MergeRules(official=True), None),
    ],
)
def test_negatives_are_what_people_refused_and_nothing_keeps(labels, score, rules, negative):
    """A weak yes is not a negative, nor is a pair that nobody looked at."""
    merged = merge_one(labels, score, rules=rules)

    assert [found.label for found in merged.negatives] == ([negative] if negative else [])
