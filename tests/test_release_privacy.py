"""No release gives away who worked: neither ids nor hashes that anybody could compute from them."""

from __future__ import annotations

import base64
import dataclasses
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_release_writing import world

from mitl.errors import ReleaseError
from mitl.positives.privacy import find_leaks
from mitl.positives.release import release_files, write_release
from mitl.positives.release_input import ReleaseCard

WORKER = "A2SUAM1J3GNN3B"
IDS = {"worker": [WORKER], "assignment": ["3MMJ4C1ZQ7XKPL0"]}


def leaks(**files):
    return find_leaks({name: content.encode() for name, content in files.items()}, IDS)


def test_a_folder_without_ids_passes():
    """Numbers, words and other people's hashes are no leak."""
    assert leaks(a="42 plain words", b=hashlib.sha256(b"A2SUAM1J3GNN3C").hexdigest()) == []


@pytest.mark.parametrize(
    "hidden",
    [
        WORKER,
        WORKER.lower(),
        f"w_{WORKER}_1",
        f"x%41{WORKER[1:]}",
        hashlib.md5(WORKER.encode(), usedforsecurity=False).hexdigest(),
        hashlib.sha1(WORKER.encode(), usedforsecurity=False).hexdigest()[:16],
        hashlib.sha256(WORKER.encode()).hexdigest().upper(),
        base64.b64encode(hashlib.sha256(WORKER.encode()).digest()).decode(),
        base64.b32encode(hashlib.sha512(WORKER.encode()).digest()[:10]).decode().lower(),
        base64.b64encode(WORKER.encode()).decode(),
        WORKER.encode().hex(),
    ],
)
def test_an_id_is_found_in_every_usual_form(hidden):
    """As it is, in other letters, inside a longer word, encoded, or hashed without a key."""
    (found, *_) = leaks(table=f"a,{hidden},b\n")

    assert (found.file, found.what) == ("table", "worker")


@pytest.mark.parametrize("place", ["column", "list", "metadata"])
def test_an_id_inside_a_compressed_table_is_found(place):
    """Cells, lists and the table's own metadata are read, not only the file's bytes."""
    values = [[WORKER]] if place == "list" else [WORKER if place == "column" else "x"]
    table = pa.table({"a": values})
    if place == "metadata":
        table = table.replace_schema_metadata({"made by": WORKER})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    files = {"t.parquet": sink.getvalue().to_pybytes()}

    assert any(leak.what == "worker" for leak in find_leaks(files, IDS))


@settings(max_examples=40)
@given(st.text("abcdefghij0123456789-_ ,", max_size=30), st.text("abcdefghij0123456789-_ ,", max_size=30))
def test_an_id_is_found_wherever_it_stands(before, after):
    """Whatever stands around it."""
    assert any(leak.form == "as it is" for leak in leaks(page=f"{before}{WORKER}{after}"))


def test_a_release_gives_nobody_away():
    """Pseudonyms under the release's secret are no hash of the ids."""
    data = world()
    workers = {f"A{n}": f"A{n}SUAM1J3GNN3B" for n in range(3)}
    names = tuple(workers[name] for name in data.judgements.workers)
    judgements = dataclasses.replace(data.judgements, workers=names)
    files, _ = release_files(dataclasses.replace(data, judgements=judgements))

    assert find_leaks(files, {"worker": workers.values()}) == []


def test_a_release_that_would_give_an_id_away_is_not_written(tmp_path):
    """The makers' own words may hold one; the place is named and nothing is written."""
    data = world()
    told = dataclasses.replace(data, card=ReleaseCard(ethics=f"we thank {WORKER}"))

    with pytest.raises(ReleaseError, match=r"datasheet.md would hold the id of a worker \(as it is\)"):
        write_release(tmp_path / "release", told, private_ids=IDS)

    assert not (tmp_path / "release").exists()
    assert write_release(tmp_path / "release", data, private_ids=IDS).changed
