"""Rankings on disk: one Parquet file per run, annotator and direction, in the data set's own ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.base import Ranking
from mitl.core.whole_files import remove_dead_parts, whole_file
from mitl.errors import AnnotatorError, RetrievalError
from mitl.records import Direction, IdKind

MAX_DEPTH = int(np.iinfo(np.int16).max)

_KEYS = ("mitl", "annotator", "direction", "depth", "fingerprint")
DATASET_KEY = b"dataset_sha256"
"""In the metadata of a file: over the ids and texts of the data set that was searched."""


@dataclass(frozen=True, slots=True)
class MadeBy:
    """Whose ranking it is, which way, and all that it depends on."""

    annotator: str
    direction: Direction
    fingerprint: str
    dataset_sha256: str = ""
    """Over the ids and texts of the data set."""


@dataclass(frozen=True, slots=True)
class RankingInfo:
    """What a ranking file says of itself, without reading its rows."""

    made: MadeBy
    """Its ``dataset_sha256`` is empty in a file that does not say it."""
    depth: int
    mitl: str
    """The version of mitl that wrote it."""


@dataclass(frozen=True, slots=True)
class ExternalIds:
    """The data set's own ids, as text, by surrogate id."""

    kind: IdKind
    queries: Mapping[int, str]
    items: Mapping[int, str]


def write_ranking(path: Path, ranking: Ranking, made: MadeBy, ids: ExternalIds) -> None:
    """Write a ranking as Parquet: query_id, rank (int16 from 1), item_id, similarity (float32), best first.

    Ids are external: int64 where the data set's are integers, else strings. The file is there whole or not at
    all, and the same input gives the same bytes.

    Raises:
        RetrievalError: shapes disagree, an id has no external id, or the ranking is deeper than int16 counts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, depth = _checked_shape(ranking)
    queries = _external(ranking.query_ids, ids.queries, ids.kind, "query")
    items = _external(ranking.item_ids.reshape(-1), ids.items, ids.kind, "item")
    id_type = pa.int64() if ids.kind is IdKind.INTEGER else pa.string()
    about = version("mitl"), made.annotator, made.direction.value, str(depth), made.fingerprint
    metadata = dict(zip(_KEYS, about, strict=True)) | {DATASET_KEY: made.dataset_sha256}
    table = pa.table(
        {
            "query_id": pa.array(queries, id_type).take(pa.array(np.repeat(np.arange(count), depth))),
            "rank": pa.array(np.tile(np.arange(1, depth + 1, dtype=np.int16), count)),
            "item_id": pa.array(items, id_type),
            "similarity": pa.array(ranking.similarities.reshape(-1), pa.float32()),
        }
    ).replace_schema_metadata(metadata)
    remove_dead_parts(path.parent)
    with whole_file(path) as sink:
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)


def read_ranking_info(path: Path) -> RankingInfo:
    """What the file says of itself; RetrievalError where it is missing or not a whole ranking file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise RetrievalError(f"no ranking file {str(path)!r}; run `mitl propose` to make it")
    try:
        metadata = pq.read_metadata(path).metadata or {}
        fields = {key: metadata[key.encode()].decode() for key in _KEYS}
        dataset = metadata.get(DATASET_KEY, b"").decode()
        made = MadeBy(fields["annotator"], Direction(fields["direction"]), fields["fingerprint"], dataset)
        return RankingInfo(made, int(fields["depth"]), fields["mitl"])
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _broken(path, error) from error


def read_ranking(
    path: Path, query_surrogates: Mapping[str, int], item_surrogates: Mapping[str, int]
) -> Ranking:
    """The ranking in a file of ``write_ranking``, in surrogate ids (external id as text to surrogate).

    Raises:
        RetrievalError: the file is missing, cut off, damaged, not a ranking, or names an id that is not
        given.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    info = read_ranking_info(path)
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        columns = {name: table.column(name) for name in ("query_id", "rank", "item_id", "similarity")}
        rank = np.asarray(columns["rank"].to_numpy(), np.int64)
        similarity = np.asarray(columns["similarity"].to_numpy(), np.float32)
        queries, items = columns["query_id"].to_pylist(), columns["item_id"].to_pylist()
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _broken(path, error) from error
    depth = info.depth
    if (
        depth < 1
        or len(rank) % depth
        or not np.array_equal(rank, np.tile(np.arange(1, depth + 1), len(rank) // depth))
    ):
        raise _broken(path, f"its ranks do not run from 1 to {depth} for every query")
    if any(queries[i] != queries[i - i % depth] for i in range(len(queries))):
        raise _broken(path, "the rows of a query do not stand together")
    query_ids = _surrogates(queries[::depth], query_surrogates, path, "query")
    item_ids = _surrogates(items, item_surrogates, path, "item")
    return Ranking(query_ids, item_ids.reshape(-1, depth), similarity.reshape(-1, depth))


def require_best_first(
    annotator: str, ranking: Ranking, query_ids: Sequence[int], gallery_ids: Sequence[int], depth: int
) -> None:
    """AnnotatorError where what an annotator ranked by itself is not so many items for each query, best first."""
    said = f"annotator {annotator!r}"
    if not isinstance(ranking, Ranking):
        raise AnnotatorError(
            f"{said} gave a {type(ranking).__name__} for a ranking; see annotators.base.Ranking"
        )
    queries, items, similarities = map(
        np.asarray, (ranking.query_ids, ranking.item_ids, ranking.similarities)
    )
    wanted = (len(query_ids), depth)
    if not np.array_equal(queries, query_ids) or items.shape != wanted or similarities.shape != wanted:
        raise AnnotatorError(
            f"{said} ranked items {items.shape} with similarities {similarities.shape} for {len(queries)} queries; it "
            f"should rank {depth} for each of the {len(query_ids)} that were asked, in their order"
        )
    if not np.isin(items, gallery_ids).all() or not np.diff(np.sort(items, axis=1), axis=1).all():
        raise AnnotatorError(f"{said} ranked an item twice for a query, or one that is not in the gallery")
    if not np.isfinite(similarities).all() or (np.diff(similarities, axis=1) > 0).any():
        raise AnnotatorError(f"{said} did not rank the best first, or by a similarity that is not finite")


def _checked_shape(ranking: Ranking) -> tuple[int, int]:
    if (
        ranking.item_ids.ndim != 2
        or ranking.item_ids.shape != ranking.similarities.shape
        or len(ranking.item_ids) != len(ranking.query_ids)
    ):
        raise RetrievalError(
            f"a ranking of {len(ranking.query_ids)} queries has items {ranking.item_ids.shape} "
            f"and similarities {ranking.similarities.shape}"
        )
    count, depth = ranking.item_ids.shape
    if not 1 <= depth <= MAX_DEPTH:
        raise RetrievalError(f"a ranking is {depth} deep; files hold 1 to {MAX_DEPTH}")
    return count, depth


def _external(
    ids: NDArray[np.int64], external_ids: Mapping[int, str], id_kind: IdKind, what: str
) -> list[int] | list[str]:
    try:
        texts = [external_ids[surrogate] for surrogate in ids.tolist()]
    except KeyError as error:
        raise RetrievalError(f"{what} {error.args[0]} of the ranking has no external id") from error
    if id_kind is IdKind.STRING:
        return texts
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise RetrievalError(
            f"a {what} id is not an integer, though the data set's ids are: {error}"
        ) from error


def _surrogates(
    external: Sequence[Any], surrogates: Mapping[str, int], path: Path, what: str
) -> NDArray[np.int64]:
    try:
        return np.array([surrogates[str(external_id)] for external_id in external], np.int64)
    except KeyError as error:
        raise RetrievalError(
            f"{str(path)!r} ranks {what} {error.args[0]!r}, which is not in the data set; "
            "the file belongs to another one"
        ) from error


def _broken(path: Path, why: object) -> RetrievalError:
    reason = " ".join(str(why).split()).rstrip(".")
    return RetrievalError(
        f"{str(path)!r} is not a whole ranking file ({reason}); delete it and run `mitl propose` again"
    )
