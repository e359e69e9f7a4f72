"""Rankings on disk: what is written comes back, in external ids, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.base import Ranking
from mitl.errors import RetrievalError
from mitl.records import Direction, IdKind
from mitl.retrieval.rankings import (
    ExternalIds,
    MadeBy,
    RankingInfo,
    read_ranking,
    read_ranking_info,
    write_ranking,
)


def ranking(queries: int = 3, depth: int = 4, seed: int = 0) -> Ranking:
    rng = np.random.default_rng(seed)
    items = (
        np.stack([rng.permutation(50)[:depth] for _ in range(queries)])
        if queries
        else np.empty((0, depth), int)
    )
    similarities = -np.sort(-rng.standard_normal((queries, depth)), axis=1).astype(np.float32)
    return Ranking(np.arange(queries, dtype=np.int64) * 2, items.astype(np.int64), similarities)


def external(kind: IdKind) -> tuple[dict[int, str], dict[int, str]]:
    stem = "" if kind is IdKind.INTEGER else "é,'x"
    return {i: f"{stem}{i + 391895}" for i in range(100)}, {i: f"{stem}{i * 7}" for i in range(50)}


def write(path: Path, one: Ranking, kind: IdKind = IdKind.INTEGER) -> None:
    queries, items = external(kind)
    write_ranking(
        path,
        one,
        MadeBy("pvse", Direction.T2I, "abc"),
        ExternalIds(kind, queries, items),
    )


def read(path: Path, kind: IdKind = IdKind.INTEGER) -> Ranking:
    queries, items = ({v: k for k, v in side.items()} for side in external(kind))
    return read_ranking(path, queries, items)


@settings(max_examples=30, deadline=None)
@given(
    queries=st.integers(0, 20),
    depth=st.integers(1, 25),
    kind=st.sampled_from(list(IdKind)),
    seed=st.integers(0, 2**32),
)
def test_what_is_written_comes_back_bit_for_bit(tmp_path_factory, queries, depth, kind, seed):
    """Ids return as surrogates and similarities as the same float32, for integer and string ids."""
    path = tmp_path_factory.mktemp("runs") / "pvse.t2i.parquet"
    before = ranking(queries, depth, seed)

    write(path, before, kind)
    after = read(path, kind)

    assert np.array_equal(after.query_ids, before.query_ids)
    assert np.array_equal(after.item_ids, before.item_ids)
    assert after.item_ids.shape == (queries, depth)
    assert after.similarities.tobytes() == before.similarities.tobytes()


def test_the_file_holds_external_ids_and_says_what_it_is(tmp_path):
    """Columns and types as documented; integers where the data set's ids are integers."""
    path = tmp_path / "runs" / "h" / "pvse.t2i.parquet"

    write(path, ranking())
    table = pq.read_table(path)

    assert [f"{field.name}:{field.type}" for field in table.schema] == [
        "query_id:int64",
        "rank:int16",
        "item_id:int64",
        "similarity:float",
    ]
    assert table.column("query_id").to_pylist()[::4] == [391895, 391897, 391899]
    assert table.column("rank").to_pylist() == [1, 2, 3, 4] * 3
    info = read_ranking_info(path)
    assert info == RankingInfo(MadeBy("pvse", Direction.T2I, "abc"), 4, info.mitl)
    write(path, ranking(), IdKind.STRING)
    assert str(pq.read_schema(path).field("item_id").type) == "string"


def test_the_same_ranking_gives_the_same_bytes(tmp_path):
    """Nothing of the clock, the process or the path is in the file."""
    write(tmp_path / "a.parquet", ranking())
    write(tmp_path / "b" / "other.parquet", ranking())

    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b" / "other.parquet").read_bytes()


def test_a_file_cut_anywhere_is_refused_in_one_line(tmp_path):
    """Half a file never passes for a ranking."""
    path = tmp_path / "pvse.t2i.parquet"
    write(path, ranking())
    whole = path.read_bytes()

    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(
            RetrievalError, match=r"is not a whole ranking file .* run `mitl propose` again$"
        ) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_a_damaged_page_is_noticed(tmp_path):
    """A flipped bit in the stored rows is an error, never another ranking."""
    path = tmp_path / "pvse.t2i.parquet"
    write(path, ranking())
    whole = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    column = group.column(3)
    end = column.data_page_offset + column.total_compressed_size

    for place in range(end - 8, end):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(RetrievalError, match="is not a whole ranking file"):
            read(path)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    """The new file takes the old one's place only once it is whole and on disk."""
    path = tmp_path / "pvse.t2i.parquet"
    write(path, ranking(seed=1))
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, ranking(seed=2))

    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_other_files_and_strange_ids_are_named(tmp_path):
    """A missing file, another kind of Parquet and an unknown id each get their own line."""
    import pyarrow as pa

    with pytest.raises(RetrievalError, match=r"^no ranking file '.*none.parquet'; run `mitl propose`"):
        read(tmp_path / "none.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(RetrievalError, match="is not a whole ranking file"):
        read(tmp_path / "x.parquet")
    path = tmp_path / "pvse.t2i.parquet"
    write(path, ranking())
    with pytest.raises(RetrievalError, match=r"ranks query '391895', which is not in the data set"):
        read_ranking(path, {}, {})


def test_rows_that_do_not_form_rankings_are_refused(tmp_path):
    """Ranks must run from 1 to the depth for one query after the other."""
    path = tmp_path / "pvse.t2i.parquet"
    write(path, ranking())
    table = pq.read_table(path)

    pq.write_table(table.slice(1), path)
    with pytest.raises(RetrievalError, match="ranks do not run from 1 to 4"):
        read(path)
    mixed = table.column("query_id").to_numpy().copy()
    mixed[1] = 391899
    pq.write_table(table.set_column(0, "query_id", [mixed]), path)
    with pytest.raises(RetrievalError, match="rows of a query do not stand together"):
        read(path)


@pytest.mark.parametrize(
    ("one", "kind", "message"),
    [
        (
            Ranking(np.arange(2), np.zeros((3, 4), int), np.zeros((3, 4), np.float32)),
            "integer",
            "a ranking of 2 queries has items",
        ),
        (Ranking(np.arange(1), np.zeros((1, 0), int), np.zeros((1, 0), np.float32)), "integer", "is 0 deep"),
        (
            Ranking(np.array([777]), np.zeros((1, 1), int), np.zeros((1, 1), np.float32)),
            "integer",
            "query 777 of the ranking has no",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, one, kind, message):
    """A misshapen ranking or an unknown id never becomes a file."""
    with pytest.raises(RetrievalError, match=message):
        write(tmp_path / "r.parquet", one, IdKind(kind))

    assert list(tmp_path.iterdir()) == []


def test_text_ids_under_an_integer_data_set_are_refused(tmp_path):
    """A data set that claims integer ids cannot slip text into its files."""
    with pytest.raises(RetrievalError, match="a query id is not an integer"):
        write_ranking(
            tmp_path / "r.parquet",
            ranking(1, 1),
            MadeBy("a", Direction.I2T, "f"),
            ExternalIds(IdKind.INTEGER, {0: "one.jpg"}, external(IdKind.INTEGER)[1]),
        )
