"""Comparing existing sets of positives with a verified one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from dataclasses import replace as replace_fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypedDict

from mitl.core.formats import csv_bytes
from mitl.core.whole_files import write_kept
from mitl.datasets.assembling import id_kind, tie_key
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.errors import FormError, ReleaseError, UsageError
from mitl.positives.folders import require_one_dataset
from mitl.positives.sources import (
    PositiveSet,
    Quality,
    Verified,
    count,
    overlap,
    quality,
    read_pairs,
    read_set,
)
from mitl.records import Direction, StageResult, Table, several
from mitl.records.results import printed_by
from mitl.settings import CONFIG_FILE, Settings
from mitl.stages.analysing.sets import QUALITIES, compared_sets
from mitl.stages.analysing.table import for_people

_Pair = tuple[str, str]
_COLUMNS = ("direction", "image_id", "caption_id", "in", "label", "sources", "answers", "annotators")


@printed_by("compare")
class CompareCounts(TypedDict):
    """How sets of positives compare."""

    queries: Annotated[dict[str, int], "direction → queries of the last set"]
    positives: Annotated[dict[str, dict[str, int]], "set → direction → positives of those queries"]
    quality: Annotated[
        dict[str, dict[str, dict[str, Any]]],
        "set → direction → precision and recall (0 to 1 or null), queries that count, queries dropped",
    ]
    overlap: Annotated[
        dict[str, dict[str, dict[str, int]]],
        "set → direction → pairs in both, in the set alone, in the last alone",
    ]


@printed_by("compare", key="paths")
class ComparePaths(TypedDict, total=False):
    """What a comparison wrote."""

    differences: Annotated[str, "the CSV file, with `--differences`"]


def compare(
    names: Sequence[str],
    *,
    settings: Settings | None = None,
    differences: Path | None = None,
    replace: bool = False,
) -> StageResult:
    """Count the positives of several sets on the queries of the last, and hold the others against it.

    Precision and recall are taken against the pairs that people judged in the last set; where it holds no
    judgements, its positives stand for them and every pair counts as looked at.

    Args:
        names: sets by name, see :func:`mitl.positives.sources.read_set`; at least two, the verified one last.
        settings: of a project, whose captions say whose they are; without one COCO's official ones do.
        differences: a CSV of the pairs on which the first set and the last differ, with what speaks for them.
        replace: write over a file of differences that holds something else.

    Raises:
        UsageError: fewer than two sets, or one named twice; or the file holds something else, or cannot be written.
        FormError: a set is of other kinds of items than the last.
        ReleaseError: a set cannot be read, is of another data set, or shares no query with the last.
    """
    sets, datasets = _read_sets(names, settings)
    last = sets[-1]
    queries = {direction: tuple(last.positives.by_query[direction]) for direction in Direction}
    _require_comparable(sets, datasets)
    positives = {
        positive_set.name: {d.value: count(positive_set.positives.by_query[d], queries[d]) for d in Direction}
        for positive_set in sets
    }
    warnings = []
    if last.verified is None:
        warnings.append(
            f"{last.name} holds no judgements: its positives count as verified, and every pair as looked at"
        )
    qualities = {
        positive_set.name: {d: _quality(positive_set, last, queries[d], d) for d in Direction}
        for positive_set in sets[:-1]
    }
    overlaps = {
        other.name: {
            d.value: asdict(overlap(other.positives.by_query[d], last.positives.by_query[d], queries[d]))
            for d in Direction
        }
        for other in sets[:-1]
    }
    paths: ComparePaths = {}
    if differences is not None:
        write_kept(differences, _differences(sets[0], last, queries), replace=replace)
        paths["differences"] = str(differences)
    counts: CompareCounts = {
        "queries": {d.value: len(queries[d]) for d in Direction},
        "positives": positives,
        "quality": {
            name: {d.value: asdict(measured) for d, measured in by_direction.items()}
            for name, by_direction in qualities.items()
        },
        "overlap": overlaps,
    }
    pairs = tuple(
        (name, direction, *(sizes[part] for part in ("both", "only_first", "only_second")))
        for name, by_direction in overlaps.items()
        for direction, sizes in by_direction.items()
    )
    return StageResult(
        counts=counts,
        paths=paths,
        warnings=tuple(warnings),
        tables=(
            _count_table(sets, queries, positives),
            for_people(f"in percent, against what {last.name} verified", QUALITIES, compared_sets(qualities)),
            Table("pairs", ("set", "direction", "in both", "in it alone", f"in {last.name} alone"), pairs),
        ),
        lines=(f"the pairs on which {sets[0].name} and {last.name} differ: {differences}",)
        if differences
        else (),
    )


def _require_comparable(sets: Sequence[PositiveSet], datasets: Sequence[tuple[str, str | None]]) -> None:
    """FormError or ReleaseError where a set is of other items than the last, of other data, or has no query of it."""
    last = sets[-1]
    for other in sets[:-1]:
        if other.form != last.form:
            mine, its = (" and ".join(of.form.nouns) for of in (other, last))
            raise FormError(
                f"{other.name} is of {mine}, but {last.name} of {its}; compare sets of one data set, with the same ids"
            )
    require_one_dataset(*datasets)
    for other in sets[:-1]:
        if not any(last.positives.by_query[d].keys() & other.positives.by_query[d].keys() for d in Direction):
            raise ReleaseError(
                f"{other.name} and {last.name} have no query in common; compare sets of one data set, with the same ids"
            )


def _read_sets(
    names: Sequence[str], settings: Settings | None
) -> tuple[list[PositiveSet], list[tuple[str, str | None]]]:
    """The sets, and all that says of which data set it is: they, and the project where its captions are read."""
    if len(names) < 2:
        raise UsageError("comparing takes two sets or more, the verified one last")
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise UsageError(f"{twice!r} is named twice; name each set once, the verified one last")
    in_project = settings is not None and (settings.project / CONFIG_FILE).is_file()
    project: dict[str, str | None] = {}

    def image_of() -> dict[str, str]:
        assert settings is not None
        with open_database(settings.db_url, read_only=True) as session:
            dataset = item_store.dataset(session)
            images, _ = item_store.names(session, dataset.id)
            captions = item_store.captions(session, dataset.id)
        project["this project"] = dataset.content_sha256
        return {caption.external_id: images[caption.image_id] for caption in captions}

    sets = [read_set(name, image_of) if in_project else read_set(name) for name in names]
    return sets, [*project.items(), *((each.name, each.dataset_sha256) for each in sets)]


def _quality(other: PositiveSet, last: PositiveSet, queries: Sequence[str], direction: Direction) -> Quality:
    positives = other.positives.by_query[direction]
    verified = last.verified
    if verified is None:
        right = last.positives.pairs(direction)
        looked_at = right | _within(other, queries, direction)
        verified = Verified(looked_at, right)
    return quality(positives, verified, queries, direction)


def _within(
    positive_set: PositiveSet, queries: Sequence[str], direction: Direction
) -> frozenset[tuple[str, str]]:
    tables = positive_set.positives.by_query
    listed = {query: tables[direction][query] for query in queries if query in tables[direction]}
    return replace_fields(positive_set.positives, by_query={**tables, direction: listed}).pairs(direction)


def _count_table(
    sets: Sequence[PositiveSet],
    queries: Mapping[Direction, Sequence[str]],
    counts: Mapping[str, Mapping[str, int]],
) -> Table:
    first = sets[0].name

    def cell(name: str, direction: Direction) -> str:
        positives, base = counts[name][direction.value], counts[first][direction.value]
        return f"{positives:,}" + ("" if name == first or not base else f" (×{positives / base:.2f})")

    form = sets[-1].form
    asked = [
        several(len(queries[direction]), form.sides[side], form.nouns[side])
        for side, direction in reversed(list(enumerate(Direction)))
    ]
    return Table(
        f"positives of {sets[-1].name}'s queries: {', '.join(asked)}",
        ("set", *(f"positive {noun}" for noun in form.nouns)),
        tuple((each.name, cell(each.name, Direction.T2I), cell(each.name, Direction.I2T)) for each in sets),
    )


def _differences(first: PositiveSet, last: PositiveSet, queries: Mapping[Direction, Sequence[str]]) -> bytes:
    """CSV of the pairs that one of the two holds alone, in the order of their ids, with the evidence of releases."""
    evidence = [_evidence(positive_set.folder) for positive_set in (last, first)]
    rows: list[Sequence[object]] = [_COLUMNS]
    for direction in Direction:
        pairs = [_within(positive_set, queries[direction], direction) for positive_set in (first, last)]
        differing = pairs[0] ^ pairs[1]
        key = tie_key(id_kind(chain.from_iterable(differing)))
        for pair in sorted(differing, key=lambda pair: (key(pair[0]), key(pair[1]))):
            name = (first if pair in pairs[0] else last).name
            # The later of the two sets that know a pair tells of it.
            row: Mapping[str, Any] = next((known[pair] for known, _ in evidence if pair in known), {})
            answers = next((given[pair] for _, given in evidence if pair in given), [])
            told = (row.get("sources") or (), sorted(answers), row.get("annotators") or ())
            rows.append((direction.value, *pair, name, row.get("label"), *map("|".join, told)))
    return csv_bytes(rows)


def _evidence(folder: Path | None) -> tuple[dict[_Pair, Mapping[str, Any]], dict[_Pair, list[str]]]:
    """What a release says: its positives, and the usable answers, by pair; nothing of a set that is no release."""
    answers: dict[_Pair, list[str]] = {}
    if folder is None:
        return {}, answers
    for pair, row in read_pairs(folder, "judgements.parquet", "label", "usable"):
        if row["usable"] and row["label"] is not None:
            answers.setdefault(pair, []).append(row["label"])
    return dict(read_pairs(folder, "positives.parquet", "label", "sources", "annotators")), answers
