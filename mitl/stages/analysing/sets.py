"""Table 2: precision and recall of existing sets of positives against what people verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from mitl.datasets.cxc import POSITIVE_FROM
from mitl.errors import ReleaseError
from mitl.positives.comparing import ByQuery, Quality, Verified, quality
from mitl.positives.sources import read_set
from mitl.records import Direction, Pair, Table
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import Material, item_of, query_of
from mitl.stages.analysing.shown import percent

Sets = dict[str, Mapping[Direction, ByQuery]]


def sets(material: Material, names: Sequence[str] = ()) -> Findings:
    """The project's originals, its CxC ratings where it has them, and the sets named, on the project's queries.

    Args:
        names: sets as ``mitl compare`` takes them.

    Raises:
        MetricError: nothing is judged.
        ReleaseError: a set cannot be read, or lists none of the project's queries.
    """
    material.require_judgements()
    verified = _verified(material)
    ids = {Direction.I2T: material.known.image_ids, Direction.T2I: material.known.caption_ids}
    queries = {d: [ids[d][query] for query in material.known.queries[d]] for d in Direction}
    found = {
        name: {d: quality(by_query.get(d, {}), verified, queries[d], d) for d in Direction if queries[d]}
        for name, by_query in _all_sets(material, names, queries).items()
    }
    return Findings(
        counts={name: {d.value: asdict(one) for d, one in by.items()} for name, by in found.items()},
        tables=(_table(found),),
        lines=(
            "over the pairs that people looked at; a query is left out where they looked at none of its positives",
        ),
        rows={"sets": _rows(found)},
    )


def _all_sets(material: Material, names: Sequence[str], queries: Mapping[Direction, Sequence[str]]) -> Sets:
    known = material.known
    found: Sets = {"original": _by_query(material, known.originals)}
    rated = [pair for pair, score in known.ratings.items() if score >= POSITIVE_FROM]
    if rated:
        found["cxc"] = _by_query(material, rated)
    for name in names:
        found[name] = read_set(name, partial(_image_of, material)).positives.by_query
        if not any(set(found[name].get(d, {})) & set(queries[d]) for d in Direction):
            raise ReleaseError(
                f"{name} lists none of this project's queries; give a set of the same data set"
            )
    return found


def _image_of(material: Material) -> dict[str, str]:
    known = material.known
    return {caption.external_id: known.image_ids[caption.image_id] for caption in known.captions}


def _by_query(material: Material, pairs: Sequence[Pair]) -> dict[Direction, dict[str, set[str]]]:
    ids = {Direction.I2T: material.known.image_ids, Direction.T2I: material.known.caption_ids}
    found: dict[Direction, dict[str, set[str]]] = {direction: {} for direction in Direction}
    for direction, other in zip(Direction, reversed(Direction), strict=True):
        for pair in pairs:
            query = ids[direction][query_of(pair, direction)]
            found[direction].setdefault(query, set()).add(ids[other][item_of(pair, direction)])
    return found


def _verified(material: Material) -> Verified:
    images, captions = material.known.image_ids, material.known.caption_ids
    named = {pair: (images[pair.image_id], captions[pair.caption_id]) for pair in material.answers}
    positive = (named[pair] for pair, answer in material.answers.items() if answer.label.is_positive)
    return Verified(frozenset(named.values()), frozenset(positive))


def _table(found: Mapping[str, Mapping[Direction, Quality]]) -> Table:
    rows = tuple(
        (name, d.value, percent(one.precision), percent(one.recall), one.queries, one.dropped)
        for name, by_direction in found.items()
        for d, one in by_direction.items()
    )
    title = "existing sets against the verified pairs, in percent"
    return Table(title, ("set", "direction", "precision", "recall", "queries", "left out"), rows)


def _rows(found: Mapping[str, Mapping[Direction, Quality]]) -> Table:
    rows = tuple(
        (name, d.value, one.precision, one.recall, one.queries, one.dropped)
        for name, by_direction in found.items()
        for d, one in by_direction.items()
    )
    return Table("", ("set", "direction", "precision", "recall", "queries", "left_out"), rows)
