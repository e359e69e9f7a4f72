"""Labels that a machine gave under a bound: what they are worth in merging, and how a release marks them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_kit import PAIRS, RATINGS, RULES, Conflict, MergeInput, P, merge, merge_one
from release_kit import world
from suite_kit import examples

from mitl.positives.exclusions import Exclusions
from mitl.positives.merging import MergeRules
from mitl.positives.release import release_files
from mitl.positives.release_input import LabelledPart, MachineBound
from mitl.records import Judgement, Label, Pair, PositiveSource

YES, WEAK_YES, WEAK_NO, NO = Label
JUDGED, CXC, ORIGINAL, MACHINE, _ = PositiveSource
JUDGEMENTS = st.lists(
    st.builds(Judgement, PAIRS, st.sampled_from(["A1", "A2"]), st.sampled_from(Label), usable=st.booleans()),
    max_size=10,
)
ORIGINALS = st.lists(PAIRS, max_size=6)
LABELS = st.dictionaries(PAIRS, st.sampled_from(Label), max_size=8)
BOUND = MachineBound(0.95, "binary", 0.1, (LabelledPart("likely", 900, 400, 5, 0.02),))


@pytest.mark.parametrize(
    ("machine", "labels", "score", "original", "with_originals", "sources"),
    [
        (YES, [], None, False, True, (MACHINE,)),
        (WEAK_YES, [], None, True, True, (ORIGINAL, MACHINE)),
        (YES, [], None, True, False, (ORIGINAL, MACHINE)),
        (YES, [], 4.0, False, True, (CXC, MACHINE)),
        (NO, [], 4.0, False, True, (CXC,)),
        (YES, [], 2.0, False, True, None),
        (YES, [NO], None, False, True, None),
        (NO, [YES], None, False, True, (JUDGED,)),
        (YES, [YES], None, False, True, (JUDGED,)),
        (NO, [], None, True, True, (ORIGINAL,)),
        (NO, [], None, True, False, None),
        (NO, [], None, False, True, None),
    ],
)
def test_people_cxc_and_originals_beat_a_machine(machine, labels, score, original, with_originals, sources):
    """A machine decides where no other source does; a label on a pair that people judged is not read."""
    merged = merge_one(
        labels, score, original, MergeRules(with_originals=with_originals), machine={P: machine}
    )

    assert [positive.sources for positive in merged.positives] == ([sources] if sources else [])


def test_an_original_that_only_a_machine_refuses_stays_and_is_a_conflict():
    """The bound is over all labels; under the paper's recipe, which keeps no unasked original, the pair is negative."""
    kept, left = (
        merge_one(original=True, rules=rules, machine={P: NO})
        for rules in (None, MergeRules(with_originals=False))
    )

    assert kept.conflicts == (Conflict(P, None, 0, None, True, ORIGINAL, True),)
    assert kept.negatives == ()
    assert left.conflicts == (Conflict(P, None, 0, None, True, MACHINE, False),)
    assert [negative.label for negative in left.negatives] == [NO]


def test_a_machines_weak_yes_is_neither_a_positive_nor_a_negative_of_a_strict_release():
    """As one of people's."""
    strict = merge_one(rules=MergeRules(strict=True), machine={P: WEAK_YES})

    assert (strict.positives, strict.negatives) == ((), ())
    assert merge_one(rules=MergeRules(strict=True), machine={P: YES}).positives


@settings(deadline=None, max_examples=examples(50, 150), derandomize=True)
@given(JUDGEMENTS, RATINGS, ORIGINALS, LABELS, RULES, st.data())
def test_merging_with_machine_labels_does_not_depend_on_any_order(
    judgements, ratings, originals, labels, rules, data
):
    """Shuffled inputs give the same positives, negatives and conflicts."""
    merged = merge(MergeInput(judgements, ratings, originals, machine=labels), rules)
    shuffled = MergeInput(
        data.draw(st.permutations(judgements)),
        data.draw(st.permutations(ratings)),
        data.draw(st.permutations(originals)),
        machine=dict(data.draw(st.permutations(list(labels.items())))),
    )

    assert merge(shuffled, rules) == merged


@settings(deadline=None, max_examples=examples(50, 150), derandomize=True)
@given(JUDGEMENTS, RATINGS, ORIGINALS, LABELS, RULES)
def test_a_machine_only_adds_to_what_stands_without_it(judgements, ratings, originals, labels, rules):
    """What people, CxC and originals decide stays as it was; all else was labelled, and by nobody judged."""
    exclusions = Exclusions(frozenset({0}), frozenset({3}))
    without = merge(MergeInput(judgements, ratings, originals, exclusions=exclusions), rules)
    merged = merge(MergeInput(judgements, ratings, originals, exclusions=exclusions, machine=labels), rules)
    judged = {one.pair for one in judgements if one.usable}

    before = {positive.pair: positive for positive in without.positives}
    after = {positive.pair: positive for positive in merged.positives}
    assert before.keys() <= after.keys()
    for pair, positive in after.items():
        others = tuple(source for source in positive.sources if source is not MACHINE)
        if pair in before:
            assert others == before[pair].sources
        else:
            assert labels[pair].is_positive and pair not in judged and MACHINE in positive.sources
        assert positive.label is None or MACHINE not in positive.sources
    assert set(without.negatives) <= set(merged.negatives)
    if rules.official:
        assert merged == without


def labelled():
    """The world with five labels: two on pairs of nobody, one each on an original, a judged and a rated pair."""
    data = world(machine={Pair(1, 28): YES, Pair(4, 1): NO, Pair(1, 5): NO, Pair(3, 4): YES, Pair(6, 27): NO})
    return dataclasses.replace(data, machine=BOUND)


def test_a_release_marks_what_a_machine_labelled():
    """In sources and columns of their own; people's column stays empty; each table tells who decided."""
    files, summary = release_files(labelled())
    positives = pq.read_table(io.BytesIO(files["positives.parquet"])).to_pylist()
    negatives = pq.read_table(io.BytesIO(files["negatives.parquet"])).to_pylist()
    conflicts = list(csv.DictReader(io.StringIO(files["conflicts.csv"].decode())))

    (made,) = [row for row in positives if row["sources"] == ["machine"]]
    assert (made["image_id"], made["caption_id"], made["label"], made["machine_label"]) == (
        10,
        2800,
        None,
        "yes",
    )
    assert made["machine_probability"] == pytest.approx(0.97)
    assert (made["n_judgements"], made["probability"]) == (0, None)
    assert [
        (row["image_id"], row["caption_id"], row["label"])
        for row in negatives
        if row["sources"] == ["machine"]
    ] == [(40, 100, None)]
    assert {tuple(row["sources"]) for row in negatives} == {("machine",), ("judgement",)}
    assert summary.as_json()["positives_by_source"]["machine"] == 1
    assert summary.unanswered <= release_files(world())[1].unanswered
    assert {row["machine"] for row in conflicts} >= {"", "no"}
    json_of_image = json.loads(files["image_to_caption.json"])
    assert 2800 in json_of_image["10"]


def test_documents_tell_the_bound_and_what_the_labels_are_worth():
    """The datasheet has a section, Croissant says what was put in the place of answers, the README where it shows."""
    files, _ = release_files(labelled())
    sheet, described = files["datasheet.md"].decode(), json.loads(files["croissant.json"])

    assert "## What a machine labelled" in sheet
    assert (
        "With 0.95 confidence no more of them are wrong than 2.0 % of 5 pairs of 'likely', by a random sample of 400 "
        "that people answered."
    ) in sheet
    assert "| … that a machine labelled a match, and nobody judged | 1 |" in sheet
    assert "side with the machine where it is wrong are reckoned with, up to 10.0 %" in sheet
    assert "bound" in described["rai:dataImputationProtocol"]
    assert "Nothing was imputed" not in described["rai:dataCollectionMissingData"]
    assert "labelled by a machine alone" in files["README.md"].decode()


def test_without_machine_labels_nothing_tells_of_machines():
    """Neither a column nor a count nor a word; an empty labelling is none."""
    files, _ = release_files(world())

    assert b"machine_label" not in b"".join(files.values())
    assert b'"machine"' not in files["manifest.json"]
    assert b"What a machine" not in files["datasheet.md"]
    assert release_files(world(machine={}))[0] == files
