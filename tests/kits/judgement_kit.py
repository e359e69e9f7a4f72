"""Judgements of every kind, for tests of tables and releases."""

from __future__ import annotations

from hypothesis import strategies as st

from mitl.records import (
    Concept,
    Judgement,
    Label,
    Outcome,
    Pair,
    PairRole,
    Shortcoming,
)

PAIRS = st.builds(Pair, st.integers(0, 3), st.integers(0, 3))


JUDGEMENTS = st.lists(
    st.builds(
        Judgement,
        PAIRS,
        st.sampled_from(["w2", "w1", "w3"]),
        st.sampled_from([*Label, None]),
        outcome=st.sampled_from(list(Outcome)),
        role=st.sampled_from(list(PairRole)),
        usable=st.booleans(),
        given=st.fixed_dictionaries(
            {
                "shortcoming": st.lists(st.sampled_from(list(Shortcoming)), unique=True).map(tuple),
                "concept": st.lists(st.sampled_from(list(Concept)), unique=True).map(tuple),
            }
        ),
        active_ms=st.none() | st.integers(0, 10**6),
    ),
    max_size=30,
)
