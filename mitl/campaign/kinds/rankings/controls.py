"""Controls of preference studies: comparisons with one list that is known to be better, and which of them to trust."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sqlalchemy.orm import Session

from mitl.campaign.kinds.rankings.systems import Contest, PreferenceStudy
from mitl.campaign.pilots import sure_originals
from mitl.core.arrays import coded
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import items as item_store
from mitl.errors import ProposalError
from mitl.hits.comparisons import ComparisonControl
from mitl.judgements.gold_records import withdrawn_golds
from mitl.proposals.sampling import shuffled
from mitl.records import Comparison, ComparisonRole, Direction, Environment, Preference
from mitl.settings import Settings


class KnownComparison(NamedTuple):
    """A control, whichever side its better list stands on."""

    direction: Direction
    query_id: int
    better: tuple[int, ...]
    other: tuple[int, ...]


def known(item: Comparison) -> KnownComparison:
    """What a comparison is as a control; of one that is asked, what none is."""
    sides = (item.left_items, item.right_items)
    better, other = sides if item.expected is Preference.LEFT else sides[::-1]
    return KnownComparison(item.direction, item.query_id, better, other)


def distrusted(session: Session, environment: Environment) -> frozenset[KnownComparison]:
    """The controls that say nothing about anyone, by the rule for those of pairs: good workers fail them."""
    given = comparison_store.answered_controls(session, environment)
    controls = {
        control: code for code, control in enumerate(dict.fromkeys(known(one.control) for one in given))
    }
    _, worker = coded(np.array([one.worker for one in given], np.int64))
    control = np.array([controls[known(one.control)] for one in given], np.int64)
    passed = np.array([one.answer is one.control.expected for one in given], np.bool_)
    withdrawn = withdrawn_golds(worker, control, passed, n_controls=len(controls))
    return frozenset(one for one, code in controls.items() if withdrawn[code])


def with_other_controls(
    page: Sequence[Comparison], shown: Sequence[Comparison], bad: Collection[KnownComparison]
) -> tuple[Comparison, ...]:
    """A page that asks again, with controls that it did not have: whoever failed one of these may have been right.

    A control for which there is no other one stays.

    Args:
        shown: controls of any page, those first that are to be taken first.
        bad: controls that are not to be taken.
    """
    asked = {item.query_id for item in page if item.role is ComparisonRole.ASKED}
    taken = {item.query_id for item in page if item.role is ComparisonRole.CONTROL}
    made = []
    for item in page:
        if item.role is not ComparisonRole.CONTROL:
            made.append(item)
            continue
        fitting = [
            other
            for other in shown
            if other.direction is item.direction
            and other.query_id not in taken
            and len(other.left_items) == len(item.left_items)
            and known(other) not in bad
        ]
        # On a query that the page does not ask, and of the same side, so that neither side is usual.
        other = min(
            fitting, key=lambda o: (o.query_id in asked, o.expected is not item.expected), default=item
        )
        taken.add(other.query_id)
        made.append(replace(other, place=item.place))
    return tuple(made)


def draw_controls(
    session: Session, settings: Settings, study: PreferenceStudy, contest: Contest, count: int
) -> list[ComparisonControl]:
    """So many controls, or one for each query of the contest whose positives are known where there are fewer; those
    first that no page of the environment has had, and those last that good workers failed.

    The better side begins with the query's original positives and goes on with a system's own items, or is all
    positives where the contest's rankings were made of them; the other is
    drawn from items that no system lists for the query, and from those that they list where there are not enough.

    Raises:
        ProposalError: the gallery is too small for a list beside the better one.
    """
    if not count:
        return []
    originals: dict[int, list[int]] = defaultdict(list)
    for pair in sorted(sure_originals(session, seed=settings.seed)):
        query, item = study.direction.ordered(pair.image_id, pair.caption_id)
        originals[query].append(item)
    _, gallery = study.direction.ordered(*item_store.names(session, item_store.dataset(session).id))
    drawn_from = [query for query in contest.queries if query in contest.positives or query in originals]
    shown = comparison_store.asked(session, study.environment, ComparisonRole.CONTROL)
    met = {control.query_id for control in shown if control.direction is study.direction}
    bad = {query for way, query, *_ in distrusted(session, study.environment) if way is study.direction}
    mixed = shuffled(drawn_from, settings.seed, "preference controls")
    queries = sorted(mixed, key=lambda query: (query in bad, query in met))[:count]
    return [
        _control(settings.seed, study, contest, query, originals[query], list(gallery)) for query in queries
    ]


def _control(
    seed: int,
    study: PreferenceStudy,
    contest: Contest,
    query: int,
    originals: Sequence[int],
    gallery: Sequence[int],
) -> ComparisonControl:
    positives = contest.positives.get(query, ())
    first = contest.rankings[contest.systems[0].name][query]
    better = positives or tuple(dict.fromkeys([*originals, *first]))[: study.top_k]
    listed = {item for lists in contest.rankings.values() for item in lists[query]}
    taken = {*better, *originals}
    rest = shuffled(
        [item for item in gallery if item not in taken], seed, f"random {study.direction} {query}"
    )
    drawn = sorted(rest, key=lambda item: item in listed)[: len(better)]
    if len(drawn) < len(better):
        raise ProposalError(
            f"the gallery has {len(rest)} items beside those of a control, but its other list needs {len(better)}; "
            "give a smaller --top-k, or --controls 0"
        )
    return ComparisonControl(query, better, tuple(drawn))
