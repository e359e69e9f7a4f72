"""The tables that cross borders as pandas frames: what each column holds, its dtype, meaning and unit.

A label, an outcome, a role or a direction is the place of its value in its enum, which is quickest to sort, count and
compare; ``NONE`` stands for no value. A column of pairs holds packed pairs, see `mitl.core.arrays`, except where
it says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mitl.records.enums import Label, Outcome, PairRole
from mitl.records.questions import RATIONALE, Question

if TYPE_CHECKING:
    import pandas as pd  # takes longer to load than most commands take: only who makes a frame does

Flags = NDArray[np.bool_]
Schema = Mapping[str, tuple[str, str]]
"""Column → dtype, and what it holds."""
Columns: TypeAlias = "pd.DataFrame | Mapping[str, NDArray[Any]]"
"""A frame, or the columns of one as arrays."""

LABELS, OUTCOMES, ROLES = tuple(Label), tuple(Outcome), tuple(PairRole)
NONE = -1
"""No label, no text, no measured time."""

ANSWERS: Schema = {
    "assignment": ("int64", "row of the submission in the database; ascending"),
    "hit": ("int64", "row of its HIT"),
    "worker": ("int64", "row of its worker"),
    "pair": ("int64", "row of the pair, not the packed pair"),
    "place": ("int64", "on the page, from 1; ascending within a submission"),
    "role": ("int8", "place in PairRole"),
    "label": ("int8", "place in Label; NONE unless answered"),
    "outcome": ("int8", "place in Outcome"),
    "active_ms": ("int64", "milliseconds; 0 where nothing was measured"),
    "usable": ("bool", "whether it may count"),
}
"""Every answer of an environment where it stands: what judging work reads."""


def judgement_schema(questions: Iterable[Question]) -> Schema:
    """Every answer of an environment as a release needs it, in no order that matters; see ``Judgement``.

    The columns of texts are there only where they are asked for.
    """
    asked = list(questions)
    return {
        "pair": ("int64", "the pair"),
        "worker": ("category", "id on the requester API, or a pseudonym"),
        "label": ("int8", "place in Label; NONE where there is none"),
        "outcome": ("int8", "place in Outcome"),
        "role": ("int8", "place in PairRole"),
        "usable": ("bool", "whether it may count"),
        **{
            question.column: (
                "int16" if len(question.choices) < 16 else "int64",
                f"a bit for each place among the choices of {question.name}",
            )
            for question in asked
            if question.choices
        },
        "active_ms": ("int64", "milliseconds; NONE where the page measured nothing"),
        **{
            question.column: ("category", "in the worker's own words, missing where there are none")
            for question in asked
            if not question.choices
        },
    }


JUDGEMENTS = judgement_schema(RATIONALE)
"""The columns that every environment has."""

PAIR_ANSWERS: Schema = {
    "pair": ("int64", "ascending and distinct"),
    "label": ("int8", "place in Label"),
    "n_judgements": ("int32", "usable answers"),
    "probability": (
        "float64",
        "0 to 1, that the pair is a match; for a plain majority the share of positive answers",
    ),
}
"""One answer for each pair that has a usable one."""

EVIDENCE: Schema = {
    "pair": ("int64", "ascending and distinct"),
    "label": ("int8", "people's answer, place in Label; NONE where there is none"),
    "n_judgements": ("int32", "usable answers"),
    "probability": ("float64", "0 to 1; NaN where nobody answered"),
    "score": ("float64", "CxC's, 0 to 5, the highest of several; NaN where the pair was not rated"),
    "original": ("bool", "whether the caption was written for this image"),
    "machine": (
        "int8",
        "a machine's label under a bound, place in Label; NONE where there is none; once merged, where it is not read",
    ),
    "machine_probability": ("float64", "the machine's, 0 to 1; NaN where it gave no label"),
}
"""All that any source knows of each pair."""

MACHINE_LABELS: Schema = {
    "pair": ("int64", "distinct"),
    "label": ("int8", "place in Label"),
    "probability": ("float64", "0 to 1, calibrated, that the pair is a match"),
    "stratum": ("str", "by whose threshold it was labelled"),
}
"""The labels of the newest labelling that was not withdrawn."""

MERGED: Schema = {
    **EVIDENCE,
    "verified": ("bool", "people's answer makes a positive"),
    "rated": ("bool", "CxC's rating does"),
    "labelled": ("bool", "a machine's label does, on a pair that nobody judged"),
    "found": ("bool", "kept by an audit's answers alone"),
    "doubted": ("bool", "kept, though most of an audit's answers refuse it"),
    "kept": ("bool", "a positive"),
    "excluded": ("bool", "would be a positive, but an exclusion list names it"),
    "negative": ("bool", "people, or else a machine, called it no match, and nothing keeps it"),
    "conflict": ("bool", "the sources disagree"),
    "decided_by": ("int8", "where they disagree, the place in PositiveSource of what decided"),
}
"""What becomes of each pair."""

PROPOSALS: Schema = {
    "pair": ("int64", "the pair"),
    "annotator": ("category", "name of the machine annotator"),
    "direction": ("int8", "place in Direction"),
    "rank": ("int32", "of the item in the query's ranking, from 1"),
    "similarity": ("float64", "the annotator's; higher is closer"),
}
"""A row for each pair, annotator and direction: as rankings give them, in the order of rankings, query and rank; stored
ones by pair, annotator's name, direction and rank, with the names in order."""

_GOLD = np.array([role.is_gold for role in ROLES])
_ASKED = np.array([role.is_asked for role in ROLES])
_ANSWERED = OUTCOMES.index(Outcome.ANSWERED)


def frame(schema: Schema, columns: Mapping[str, Any]) -> pd.DataFrame:
    """A frame of these columns with the schema's dtypes; a column that is left out is not there.

    Raises:
        KeyError: a column is not in the schema.
    """
    import pandas as pd

    def typed(column: Any, dtype: Any) -> Any:
        # Whole numbers are what most columns come as, and numpy takes a tenth of the time over them.
        if not isinstance(column, pd.Series) and dtype not in ("category", "str"):
            column = np.asarray(column)
            if column.dtype.kind in "iub" or not column.size:
                return column.astype(dtype)
        return pd.Series(column).astype(dtype)

    # A column at a time: a frame that is converted whole takes twice as long.
    return pd.DataFrame({name: typed(column, schema[name][0]) for name, column in columns.items()})


def is_gold(answers: Columns) -> Flags:
    """(answers,) whether each is on a gold control."""
    return np.asarray(_GOLD[np.asarray(answers["role"])], np.bool_)


def is_asked(answers: Columns) -> Flags:
    """(answers,) whether each speaks for its pair: neither on a gold control nor on an audit's place."""
    return np.asarray(_ASKED[np.asarray(answers["role"])], np.bool_)


def is_role(answers: Columns, *roles: PairRole) -> Flags:
    """(answers,) whether each stands in one of these roles."""
    return np.asarray(np.array([role in roles for role in ROLES])[np.asarray(answers["role"])], np.bool_)


def is_labelled(answers: Columns) -> Flags:
    """(answers,) whether a label was given, usable or not."""
    return np.asarray((answers["outcome"] == _ANSWERED) & (answers["label"] != NONE), np.bool_)


def counts(answers: pd.DataFrame) -> Flags:
    """(answers,) whether each says something of its pair: usable, a label given, and asked for it.

    Candidates, repeats and overlaps are answers on their pair alike; controls and audits are not.
    """
    return np.asarray(answers["usable"]) & is_labelled(answers) & is_asked(answers)
