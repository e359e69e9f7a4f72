"""Random controls that are none: found by raters who pass the others, and by nobody else."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples

from mitl.judgements.rating_conduct import rating_conduct
from mitl.judgements.rating_tests import FEWEST_CAREFUL, apart, untrusted
from mitl.records.frames import frame
from mitl.records.similarity import RATINGS, SIMILARITY_ROLES, SimilarityRole

ROLES = [SimilarityRole.ASKED, SimilarityRole.IDENTICAL, SimilarityRole.RANDOM, SimilarityRole.REPEATED]
PAIRS = [1, 2, 3, 1]


def page(raters):
    """One page of four places, rated by raters of (asked, identical, random, repeated)."""
    rows = [
        {
            "pair": pair,
            "task": 0,
            "worker": f"w{number}",
            "score": score,
            "outcome": 0,
            "role": SIMILARITY_ROLES.index(role),
            "swapped": False,
            "hit": 1,
            "assignment": number,
            "place": place,
            "active_ms": 0,
            "usable": True,
        }
        for number, scores in enumerate(raters, 1)
        for place, (pair, role, score) in enumerate(zip(PAIRS, ROLES, scores, strict=True), 1)
    ]
    return frame(RATINGS, pd.DataFrame(rows, columns=list(RATINGS)).to_dict("list"))


GOOD = (3.0, 5.0, 3.5, 3.2)
DULL = (3.0, 3.0, 3.0, 3.0)
EAGER = (4.6, 4.6, 4.6, 4.6)


def test_careful_raters_who_find_it_alike_take_a_control_away():
    """Three of three; two are too few, and who fails the identical pair is not asked."""
    assert untrusted(page([GOOD] * 3)).tolist() == [False, False, True, False] * 3
    assert not untrusted(page([GOOD] * 2)).any()
    assert not untrusted(page([GOOD] * 2 + [DULL] * 5)).any()
    assert untrusted(page([GOOD] * 3 + [DULL] * 5)).sum() == 8
    assert not untrusted(page([GOOD] * 2 + [EAGER] * 5)).any()


def test_a_tie_or_a_skip_takes_nothing_away():
    """More than half are needed; an answer that was not given says nothing."""
    low = (3.0, 5.0, 0.5, 3.0)
    assert not untrusted(page([GOOD] * 3 + [low] * 3)).any()
    assert untrusted(page([GOOD] * 4 + [low] * 3)).any()
    assert not untrusted(page([(3.0, 5.0, np.nan, 3.0)] * 5)).any()
    assert not len(untrusted(page([])))


def test_the_record_of_a_rater_forgets_it():
    """Nobody fails a control that is none."""
    records = [conduct.controls.all for conduct in rating_conduct(page([GOOD] * 4)).values()]
    assert [(record.passes, record.golds) for record in records] == [(2, 2)] * 4


@settings(max_examples=examples(15))
@given(st.lists(st.tuples(*[st.integers(0, 500).map(lambda n: n / 100)] * 4), max_size=8))
def test_only_random_rows_are_untrusted_and_enough_people_say_so(raters):
    """Whatever people answer; exactly 1 apart still counts as the same."""
    rated = page(raters)
    mask = untrusted(rated)
    same = [r for r in raters if abs(round(100 * r[0]) - round(100 * r[3])) <= 100]
    careful = [r for r in same if r[1] >= 4 and round(100 * r[1]) - round(100 * r[2]) >= 100]
    alike = sum(r[2] > 2 for r in careful)

    assert set(rated.loc[mask, "role"]) <= {SIMILARITY_ROLES.index(SimilarityRole.RANDOM)}
    assert mask.any() == (len(careful) >= FEWEST_CAREFUL and 2 * alike > len(careful))
    assert len(apart(rated)) == len(raters)
