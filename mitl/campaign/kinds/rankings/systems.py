"""What a preference study compares: annotators of the latest run, rankings from files, or rankings made by design.

The five designed rankings are those of the paper's own study, made of a query's known positives and of items that are
none. Source: Chun et al., ECCV Caption, appendix D.1: captions with 5 to 8 positives, lists as long as there are
positives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sqlalchemy.orm import Session

from mitl.campaign.kinds.protocol import Request
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.errors import ProposalError, RetrievalError, UsageError
from mitl.hits.comparisons import MAX_PER_HIT, Lists
from mitl.positives.folders import require_one_dataset
from mitl.positives.loading import official_positives
from mitl.proposals.candidates import ranking_path
from mitl.proposals.sampling import sample, shuffled
from mitl.records import BatchKind, Direction, System, several
from mitl.retrieval.rankings import DATASET_KEY, read_ranking
from mitl.settings import Settings

_SHA = 12
"""Digits of a file's hash that its origin names."""

LEAST, MOST = 5, 8
"""Positives of a query that is asked."""

DESIGNS: Mapping[str, Callable[[int], bool]] = {
    "only-1-wrong": lambda rank: rank != 1,
    "only-1-right": lambda rank: rank == 1,
    "1-to-5-wrong": lambda rank: rank > LEAST,
    "only-5-right": lambda rank: rank == LEAST,
    "all-wrong": lambda rank: False,
}
"""Name → whether a positive stands at this rank; A to E of the paper's text, in its order."""


@dataclass(frozen=True, slots=True)
class PreferenceStudy(Request):
    """Which rankings to compare on how many queries, in which words, by how many workers; `mitl prefer publish`."""

    kind: ClassVar[str] = BatchKind.RANKINGS
    direction: Direction = Direction.T2I
    template: str = "rankings-plain"
    assignments: int = 3
    systems: tuple[str, ...] = ()
    """Annotators of the latest run; none and no files takes all that ranked in the direction."""
    files: tuple[tuple[str, Path], ...] = ()
    """Further systems: name and Parquet file of rankings."""
    designed: str | None = None
    """Source of positives for the paper's five made rankings, which then are the systems."""
    queries: int = 40
    """The paper's number (D.1)."""
    top_k: int = 5
    per_hit: int = 10
    """Comparisons per HIT, controls included."""
    controls: int = 2
    """Of them."""
    again: bool = False
    """Whether to ask again alone what could not be used, of whichever study, and nothing new."""

    def __post_init__(self) -> None:
        if not 0 <= self.controls < self.per_hit <= MAX_PER_HIT:
            raise UsageError(
                f"--per-hit {self.per_hit} with --controls {self.controls} leaves no comparison to ask; a HIT has up "
                f"to {MAX_PER_HIT}, of which at least one is not a control"
            )
        if self.designed is not None and (self.systems or self.files):
            raise UsageError(
                "--designed makes its own five rankings; leave --system and --rankings out, or leave it out"
            )
        names = [*self.systems, *(name for name, _ in self.files)]
        if self.again and (names or self.designed is not None):
            raise UsageError(
                "--again asks pages of earlier studies as they were; leave --system, --rankings and --designed out"
            )
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            raise UsageError(f"the system {twice[0]!r} is named twice; name each once")

    @property
    def own_words(self) -> Mapping[str, object]:
        """Whom it compares."""
        systems = sorted([*self.systems, *(name for name, _ in self.files)])
        return {"systems": systems, "designed": self.designed, **({"again": True} if self.again else {})}


@dataclass(frozen=True, slots=True)
class Contest:
    """What is compared: each system's lists of the same queries."""

    systems: tuple[System, ...]
    queries: tuple[int, ...]
    rankings: Mapping[str, Lists]
    """System → query → its first items."""
    positives: Lists
    """Query → what is known to be right, where the rankings were made of it; else nothing."""


def contest(session: Session, settings: Settings, study: PreferenceStudy) -> Contest:
    """The systems of a study with their lists of a random sample of the queries that all of them ranked; nothing where
    it only asks again.

    Raises:
        StoreError: nothing was proposed yet, and annotators are meant.
        UsageError: an annotator is not in the run, there are fewer than two systems, or no such positives.
        ProposalError: there are fewer common queries than asked for.
        RetrievalError, AnnotatorError: a ranking is missing, damaged or shorter than ``top_k``.
        ReleaseError: a file, or the release that tells positives, is of another data set.
    """
    if study.again:
        return Contest((), (), {}, {})
    if study.designed is not None:
        rankings, positives = designed_rankings(session, settings, study, study.designed)
        systems = tuple(System(name, f"made of {study.designed}") for name in sorted(rankings))
        return Contest(systems, tuple(sorted(positives)), rankings, positives)
    dataset = item_store.dataset(session)
    images, captions = item_store.id_maps(session, dataset.id)
    query_ids, item_ids = study.direction.ordered(images, captions)
    lists: dict[str, dict[int, tuple[int, ...]]] = {}
    compared: list[System] = []
    if study.systems or not study.files:
        run, names = _annotators(session, study)
        for name in names:
            path = ranking_path(settings.runs / run, name, study.direction)
            lists[name] = _from_run(path, query_ids, item_ids, name, study.top_k)
            compared.append(System(name, f"run {run}"))
    query_sets = [set(by_query) for by_query in lists.values()]
    query_sets += [_queries_of(path, query_ids, dataset.content_sha256) for _, path in study.files]
    if len(query_sets) < 2:
        raise UsageError(
            f"a study compares two systems or more, but {len(query_sets)} is given; name annotators with --system, "
            "or files with --rankings NAME=FILE"
        )
    common = sorted(set.intersection(*query_sets))
    if len(common) < study.queries:
        raise ProposalError(
            f"cannot sample {several(study.queries, 'query', 'queries')}; the systems have {len(common)} in common "
            f"in the direction {study.direction}, so {_instead(len(common))}"
        )
    queries = sample(common, study.queries, settings.seed, "preference queries")
    for name, path in study.files:
        from annotators.base import file_sha256
        from annotators.precomputed import read_ranking as read_file

        ranking = read_file(path, study.direction, query_ids, item_ids, queries, study.top_k)
        rows = zip(queries, ranking.item_ids.tolist(), strict=True)
        lists[name] = {query: tuple(row) for query, row in rows}
        compared.append(System(name, f"file {path.name} sha256 {file_sha256(path)[:_SHA]}"))
    chosen = {name: {query: by_query[query] for query in queries} for name, by_query in lists.items()}
    return Contest(tuple(sorted(compared, key=lambda system: system.name)), tuple(queries), chosen, {})


def _instead(most: int) -> str:
    """What to ask where only so many queries can be asked."""
    return f"ask for --queries {most} at most" if most else "give the other --direction, or other sources"


def _annotators(session: Session, study: PreferenceStudy) -> tuple[str, list[str]]:
    """The latest run and the annotators of it that are meant."""
    run = proposal_store.latest_run(session)
    if not run.config["queries"][study.direction.value]["count"]:
        raise UsageError(
            f"the latest run {run.hash} has no {study.direction} queries; give the other --direction, or run "
            "`mitl propose` with such queries"
        )
    names = [entry["name"] for entry in run.config["annotators"]]
    unknown = [name for name in study.systems if name not in names]
    if unknown:
        raise UsageError(
            f"{unknown[0]!r} is not an annotator of the latest run {run.hash}; known: {', '.join(names)}"
        )
    return run.hash, list(study.systems) or names


def _from_run(
    path: Path, queries: Mapping[str, int], items: Mapping[str, int], name: str, top_k: int
) -> dict[int, tuple[int, ...]]:
    if not path.is_file():
        raise RetrievalError(
            f"annotator {name!r} has no ranking {str(path)!r}; leave it out with --system, or run `mitl propose` again"
        )
    ranking = read_ranking(path, queries, items)
    depth = ranking.item_ids.shape[1]
    if depth < top_k:
        raise RetrievalError(
            f"the ranking {str(path)!r} is {depth} deep, but --top-k is {top_k}; ask for {depth} at most"
        )
    rows = ranking.item_ids[:, :top_k].tolist()
    return {int(query): tuple(row) for query, row in zip(ranking.query_ids, rows, strict=True)}


def _queries_of(path: Path, queries: Mapping[str, int], dataset_sha256: str) -> set[int]:
    """The project's queries that a file of rankings has, which is not of another data set."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise RetrievalError(f"no file {str(path)!r}; --rankings NAME=FILE takes a Parquet file of rankings")
    try:
        table = pq.read_table(path, columns=["query_id"])
        names = table["query_id"].unique().to_pylist()
        said = (table.schema.metadata or {}).get(DATASET_KEY, b"").decode()
    except (pa.ArrowException, OSError, KeyError, ValueError, OverflowError) as error:
        raise RetrievalError(
            f"{str(path)!r} is not a Parquet file with the columns query_id, rank, item_id, similarity: "
            f"{' '.join(str(error).split())}"
        ) from error
    named = repr(str(path)), said
    require_one_dataset(("this project", dataset_sha256), named, remedy="rank the items of this data set")
    ranked = {queries[str(name)] for name in names if str(name) in queries}
    if not ranked:
        raise RetrievalError(
            f"{str(path)!r} ranks none of the project's queries in this direction; its query_id should be the data "
            "set's own ids; or give the other --direction"
        )
    return ranked


def designed_lists(positives: Sequence[int], wrong: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Design → its list; at one rank all lists have the same positive or the same wrong item."""
    ranks = range(1, len(positives) + 1)
    return {
        name: tuple((positives if is_right(rank) else wrong)[rank - 1] for rank in ranks)
        for name, is_right in DESIGNS.items()
    }


def designed_rankings(
    session: Session, settings: Settings, study: PreferenceStudy, source: str
) -> tuple[dict[str, Lists], dict[int, tuple[int, ...]]]:
    """Design → query → its list, and query → its positives, of as many random queries as the study asks.

    Raises:
        UsageError: there is no such source of positives.
        ProposalError: too few queries have 5 to 8 positives, or the gallery is too small.
    """
    images, captions = item_store.id_maps(session, item_store.dataset(session).id)
    queries, gallery = study.direction.ordered(images, captions)
    chosen: dict[int, tuple[int, ...]] = {}
    for query, positives in _positives(settings, source, study.direction, queries, gallery):
        if LEAST <= len(positives) <= MOST:
            chosen[query] = tuple(shuffled(positives, settings.seed, f"designed {query}"))
        if len(chosen) == study.queries:
            break
    if len(chosen) < study.queries:
        raise ProposalError(
            f"{len(chosen)} queries in the direction {study.direction} have {LEAST} to {MOST} positives by {source!r}; "
            f"{_instead(len(chosen))}"
        )
    lists: dict[str, dict[int, tuple[int, ...]]] = {name: {} for name in DESIGNS}
    for query, right in chosen.items():
        others = set(gallery.values()) - set(right)
        if len(others) < len(right):
            raise ProposalError(
                f"the gallery has {len(others)} items that are not positives, but {len(right)} are needed"
            )
        wrong = shuffled(others, settings.seed, f"wrong {query}")
        for name, items in designed_lists(right, wrong).items():
            lists[name][query] = items
    return dict(lists), chosen


def _positives(
    settings: Settings,
    source: str,
    direction: Direction,
    queries: Mapping[str, int],
    gallery: Mapping[str, int],
) -> Iterator[tuple[int, list[int]]]:
    """Queries in random order, each with its positives among the gallery."""
    from mitl.crowd.truth import released_truth, truth_source

    if source == "scenes":
        truth = truth_source(settings, source)

        def of(query: str) -> list[str]:
            pairs = ((item, direction.ordered(query, item)) for item in gallery)
            return [item for item, pair in pairs if truth(*pair).label.is_positive]

    elif source == "official" or source.startswith("release:"):
        listed = official_positives("eccv") if source == "official" else released_truth(settings, source)
        by_query = listed.by_query[direction]

        def of(query: str) -> list[str]:
            return list(by_query.get(query, ()))

    else:
        raise UsageError(f"no positives called {source!r}; known: scenes, official, release:DIR")
    for name in shuffled(queries, settings.seed, "designed queries", name=queries.__getitem__):
        yield queries[name], [gallery[item] for item in of(name) if item in gallery]
