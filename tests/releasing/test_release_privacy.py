"""No release gives away who worked: neither ids nor hashes that anybody could compute from them."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import urllib.parse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from release_kit import world

from mitl.errors import ReleaseError
from mitl.positives.markdown import plain
from mitl.positives.privacy import find_leaks, refuse_leaks, short_ids
from mitl.positives.release import release_files, write_release
from mitl.positives.release_input import ReleaseCard

WORKER = "A2SUAM1J3GNN3B"
IDS = {"worker": [WORKER], "assignment": ["3MMJ4C1ZQ7XKPL0"]}


def leaks(**files):
    return find_leaks({name: content.encode() for name, content in files.items()}, IDS)


def test_a_folder_without_ids_passes():
    """Numbers, words and other people's hashes are not a leak."""
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
        hashlib.sha256(WORKER.encode()).hexdigest()[:12],
        hashlib.sha256(f"{WORKER}\n".encode()).hexdigest(),
        "x/" + base64.b64encode(hashlib.sha256(WORKER.encode()).digest()[:12]).decode(),
        base64.urlsafe_b64encode(hashlib.blake2b(WORKER.encode()).digest()).decode(),
        base64.b64encode(WORKER.encode()).decode(),
        WORKER.encode().hex(),
    ],
)
def test_an_id_is_found_in_every_usual_form(hidden):
    """As it is, in other letters, inside a longer word, encoded, or hashed without a key."""
    (found, *_) = leaks(table=f"a,{hidden},b\n")

    assert (found.file, found.what) == ("table", "worker")


@pytest.mark.parametrize("worker", ["carol@example.org", "w.0001-x", "Zoë's worker", "two words", 'a"b"c"d'])
@pytest.mark.parametrize(
    "write",
    [
        str,
        str.upper,
        plain,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: f"mailto:{urllib.parse.quote(text)}?x",
        lambda text: hashlib.sha256(text.encode()).hexdigest(),
        lambda text: base64.b64encode(text.encode()).decode(),
    ],
)
def test_an_id_of_any_letters_is_found(worker, write):
    """Past work names its workers as it likes; e-mail addresses, dots, quotes and blanks hide nothing."""
    (found, *_) = find_leaks({"page": f"thanks to {write(worker)}, who\n".encode()}, {"worker": [worker]})

    assert found.what == "worker"


def test_a_short_id_is_looked_for_as_a_hash_alone():
    """As it is, it would be found by chance; and the number of such ids is told."""
    pages = {
        "page": b"ann saw a cat",
        "other": hashlib.sha1(b"ann", usedforsecurity=False).hexdigest().encode(),
    }

    assert {(leak.file, leak.form) for leak in find_leaks(pages, {"worker": ["ann"]})} >= {
        ("other", "sha1, 20 bytes")
    }
    assert find_leaks({"page": pages["page"]}, {"worker": ["ann"]}) == []
    assert short_ids(["ann", "A2SUAM1J3GNN3B", "bob"]) == 2


def test_a_worker_who_is_called_as_an_image_is_is_no_leak(tmp_path):
    """Past work may number its workers, and a release names images by numbers."""
    ids = {"worker": ["391895", "12345678901"]}
    named = dataclasses.replace(world(), image_ids={n: f"39189{n}" for n in range(1, 7)})
    write_release(tmp_path / "r", named, private_ids=ids)

    assert short_ids(ids["worker"]) == 1
    assert [leak.found for leak in find_leaks({"page": b"12345678901 391895"}, ids)] == ["12345678901"]
    hashed = hashlib.sha256(b"391895").hexdigest().encode()
    assert find_leaks({"page": hashed}, ids)


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
    """Pseudonyms under the release's secret are not a hash of the ids."""
    data = world()
    workers = {f"A{n}": f"A{n}SUAM1J3GNN3B" for n in range(3)}
    names = data.judgements["worker"].cat.rename_categories(workers)
    judgements = data.judgements.assign(worker=names)
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


@pytest.mark.parametrize(
    ("held", "more"), [(1, "; nothing"), (2, ", and 1 more place would;"), (3, ", and 2 more places would;")]
)
def test_further_places_of_an_id_are_counted(held, more):
    """The first is named, and the others in words that fit their number."""
    files = {f"{place}.md": WORKER.encode() for place in range(held)}

    with pytest.raises(ReleaseError) as raised:
        refuse_leaks(files, {"worker": [WORKER]})

    assert f"0.md would hold the id of a worker (as it is){more}" in str(raised.value)
