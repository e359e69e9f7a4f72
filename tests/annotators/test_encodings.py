"""Encodings as artifacts: computed once, resumed after a kill, never stale, never half there."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from encoding_kit import Hashing, captions, full_after, pictures
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators.base import Encoded
from mitl.core import whole_files
from mitl.errors import AnnotatorError, RetrievalError
from mitl.records import ImageItem
from mitl.retrieval import encoding_shelf, encodings
from mitl.retrieval.encodings import EncodingStore, PictureHashes, caption_keys, image_keys


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks, checked blocks and copies of a few rows, so that small data has several."""
    monkeypatch.setattr(encodings, "CHUNK_ITEMS", {"image": 4, "caption": 4})
    monkeypatch.setattr(encoding_shelf, "BLOCK_ROWS", 2)
    monkeypatch.setattr(encoding_shelf, "_COPIED_BYTES", 150)


@pytest.fixture
def store(tmp_path) -> EncodingStore:
    return EncodingStore(tmp_path / "encodings")


def again(store: EncodingStore) -> EncodingStore:
    """The same folder in another run."""
    return EncodingStore(store.folder)


def assert_right(found: Encoded, items) -> None:
    fresh = Hashing()
    wanted = (fresh.encode_images if found.modality == "image" else fresh.encode_captions)(items)
    assert found.ids.tolist() == wanted.ids.tolist()
    assert set(found.arrays) == set(wanted.arrays)
    for name, array in wanted.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)


def test_what_comes_back_is_what_the_annotator_gives_as_memory_maps(store, tmp_path):
    """Rows in the order of the items, every array mapped from one plain .npy file."""
    images, texts = pictures(tmp_path / "p", 11), captions(10)
    network = Hashing()

    found = store.encoded(network, "image", images), store.encoded(network, "caption", texts)

    assert_right(found[0], images)
    assert_right(found[1], texts)
    for encoded in found:
        for array in encoded.arrays.values():
            assert isinstance(array, np.memmap)
    (plain,) = store.folder.glob("*/captions/*/embedding.npy")
    np.testing.assert_array_equal(np.load(plain), found[1].arrays["embedding"])


def test_nothing_is_computed_twice(store, tmp_path):
    """A second run, and a second annotator object with the same fingerprint, encode nothing."""
    images, texts = pictures(tmp_path / "p", 9), captions(9)
    store.encoded(Hashing(), "image", images)
    store.encoded(Hashing(), "caption", texts)
    second, other = Hashing(), again(store)

    assert_right(other.encoded(second, "image", images), images)
    assert_right(other.encoded(second, "caption", texts), texts)

    assert second.calls == 0
    assert not other.computed


def test_another_fingerprint_shares_nothing(store):
    """Other weights, preprocessing or settings are another annotator."""
    store.encoded(Hashing(), "caption", captions(5))
    other = Hashing(fingerprint="0" * 64)

    store.encoded(other, "caption", captions(5))

    assert len(other.asked) == 5


@settings(max_examples=40, deadline=None)
@given(
    before=st.lists(st.integers(0, 30), min_size=1, unique=True),
    after=st.lists(st.integers(0, 30), min_size=1, unique=True),
    changed=st.sets(st.integers(0, 30)),
)
def test_only_new_and_changed_items_are_encoded(tmp_path_factory, before, after, changed):
    """Whatever is added, removed, changed or moved: the others keep their rows, though surrogate ids shift."""
    store = EncodingStore(tmp_path_factory.mktemp("encodings"))
    pool = captions(31)
    edited = [replace(c, text=c.text + "!") if i in changed else c for i, c in enumerate(pool)]
    first = [replace(pool[i], id=place + 1) for place, i in enumerate(sorted(before))]
    second = [replace(edited[i], id=place + 1) for place, i in enumerate(sorted(after))]
    store.encoded(Hashing(), "caption", first)
    network = Hashing()

    assert_right(store.encoded(network, "caption", second), second)

    fresh = {edited[i].external_id for i in after if i in changed or i not in before}
    assert sorted(network.asked) == sorted(fresh)


def test_a_picture_that_changes_is_encoded_again_and_no_other(store, tmp_path):
    """Also where the file keeps its size; the others are not even read again."""
    images = pictures(tmp_path / "p", 9)
    store.encoded(Hashing(), "image", images)
    assert images[5].path is not None
    images[5].path.write_bytes(b"PICTURE 5")
    network = Hashing()

    assert_right(again(store).encoded(network, "image", images), images)

    assert network.asked == [images[5].external_id]


def test_unchanged_files_are_not_read_again(tmp_path, monkeypatch):
    """Size and times decide, once a file has been quiet for a while."""
    images = pictures(tmp_path / "p", 4)
    paths = [item.path for item in images]
    monkeypatch.setattr("mitl.retrieval.encodings._SETTLED_NS", 0)
    first = PictureHashes(tmp_path / "index.json").sha256(paths)
    read = []
    monkeypatch.setattr("mitl.retrieval.encodings._sha256", lambda path: read.append(path) or "x")

    assert PictureHashes(tmp_path / "index.json").sha256([*paths, None]) == [*first, ""]
    assert read == []
    os.utime(paths[2], ns=(1, 1))
    assert PictureHashes(tmp_path / "index.json").sha256(paths) == [first[0], first[1], "x", first[3]]


def test_a_file_read_just_after_it_changed_is_read_again(tmp_path):
    """Its times may not show a change that follows within their resolution."""
    (item,) = pictures(tmp_path / "p", 1)
    hashes = PictureHashes(tmp_path / "index.json")
    first = hashes.sha256([item.path])
    assert item.path is not None
    times = item.path.stat()
    item.path.write_bytes(b"PICTURE 0")
    os.utime(item.path, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert PictureHashes(tmp_path / "index.json").sha256([item.path]) != first


def test_a_damaged_index_costs_time_only(tmp_path):
    """It is made again."""
    images = pictures(tmp_path / "p", 2)
    (tmp_path / "index.json").write_text('{"a": 1}')

    assert len(set(PictureHashes(tmp_path / "index.json").sha256([i.path for i in images]))) == 2


@pytest.mark.parametrize("stop_at", range(1, 40))
def test_a_run_that_dies_at_any_moment_is_resumed_by_the_next(store, monkeypatch, stop_at):
    """Killed at any rename or removal of the first run: the second computes just the chunks that were not kept."""
    texts = captions(14)
    events = 0

    def dying(function):
        def wrapped(*args, **kwargs):
            nonlocal events
            events += 1
            if events == stop_at:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return wrapped

    first = Hashing()
    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "fsync"):
            patch.setattr(os, name, dying(getattr(os, name)))
        patch.setattr(whole_files.shutil, "rmtree", lambda *args, **kwargs: None)
        try:
            store.encoded(first, "caption", texts)
        except KeyboardInterrupt:
            pass
        else:
            assert events < stop_at
    whole = sum(1 for path in store.folder.glob("*/captions/[!.]*"))
    second = Hashing()

    assert_right(again(store).encoded(second, "caption", texts), texts)

    assert second.calls <= 4 - min(whole, 4)
    assert not set(second.asked) & set(first.asked[:-4]), "a chunk that was kept was computed again"


def test_what_dead_processes_left_is_removed(store):
    """Hidden parts of a process that is gone; those of a living one stay."""
    store.encoded(Hashing(), "caption", captions(3))
    folder = next(store.folder.glob("*/captions"))
    dead, alive = (
        folder / f".abc.{whole_files._host()}.{pid}.01234567.part" for pid in (2**22 + 1, os.getpid())
    )
    dead.mkdir()
    alive.mkdir()

    again(store).encoded(Hashing(), "caption", captions(3))

    assert not dead.exists()
    assert alive.exists()


def flip(path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["embedding.npy", "length.npy"])
def test_a_damaged_row_is_found_and_encoded_again(store, caplog, name):
    """One flipped bit costs the rows under its checksum, with a warning, and nothing else."""
    texts = captions(10)
    store.encoded(Hashing(), "caption", texts)
    flip(next(store.folder.glob(f"*/captions/*/{name}")), -1)
    network = Hashing()

    with caplog.at_level(logging.WARNING):
        assert_right(again(store).encoded(network, "caption", texts), texts)

    assert sorted(network.asked) == [texts[8].external_id, texts[9].external_id]
    assert "2 of 10 items are damaged and are encoded again" in caplog.text
    assert len(list(store.folder.glob("*/captions/*"))) == 1
    assert again(store).encoded(Hashing(), "caption", texts).arrays["length"].shape == (10,)


@pytest.mark.parametrize("name", ["item_keys.npy", "part.json", "embedding.npy"])
def test_a_file_that_is_cut_off_or_missing_costs_its_part(store, caplog, name):
    """All of the part is encoded again, with one warning that names it."""
    texts = captions(3)
    store.encoded(Hashing(), "caption", texts)
    for cut in (lambda path: path.write_bytes(path.read_bytes()[:-3]), lambda path: path.unlink()):
        cut(next(store.folder.glob(f"*/captions/*/{name}")))
        caplog.clear()
        network = Hashing()

        assert_right(again(store).encoded(network, "caption", texts), texts)

        assert len(network.asked) == 3
        (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert "is damaged" in warning.getMessage()


def test_a_full_disk_is_one_clear_line_and_what_was_finished_is_kept(store, monkeypatch):
    """The message says how much is kept; the next run goes on from there."""
    texts, first = captions(14), Hashing()
    with monkeypatch.context() as patch:
        full_after(13, patch)
        with pytest.raises(RetrievalError) as caught:
            store.encoded(first, "caption", texts)
    second = Hashing()

    message = str(caught.value)
    assert "the disk is full; the 8 captions that this run has encoded are kept; make room" in message
    assert "\n" not in message
    assert_right(again(store).encoded(second, "caption", texts), texts)
    assert len(second.asked) == 14 - 8
    assert not list(store.folder.rglob("*.part"))


def test_a_real_limit_on_file_sizes_reads_like_a_full_disk(store):
    """The error comes from the operating system here, in the middle of a file."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, before[1]))
    try:
        with pytest.raises(RetrievalError, match="the disk is full; the 0 captions"):
            store.encoded(Hashing(), "caption", captions(4))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert_right(store.encoded(Hashing(), "caption", captions(4)), captions(4))


def test_numbers_that_are_not_finite_name_the_item(store):
    """They are not kept, and the chunks before them are."""

    class Broken(Hashing):
        def _encoded(self, modality, items, contents):
            found = super()._encoded(modality, items, contents)
            found.arrays["embedding"][found.ids == 4, 2] = np.nan
            return found

    with pytest.raises(AnnotatorError) as caught:
        store.encoded(Broken(), "caption", captions(7))

    assert str(caught.value) == (
        "'embedding' of caption '103' by annotator 'hashing' is not finite; "
        "check the annotator's weights or files and that item"
    )
    second = Hashing()
    store.encoded(second, "caption", captions(7))
    assert len(second.asked) == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            lambda rows: rows.astype(float),
            r"'hashing': caption embeddings are float64 \(3, 6\); expected float32",
        ),
        (
            lambda rows: rows[:, 0],
            r"'hashing': caption embeddings are float32 \(3,\); expected float32 \(N, D\)",
        ),
        (lambda rows: rows.tolist(), "'hashing' gives 'embedding' of captions as a list; make it an array"),
    ],
)
def test_vectors_that_cannot_be_searched_are_not_kept(store, given, message):
    """Else the mended annotator, whose fingerprint is often the same, would still get them."""

    class Wrong(Hashing):
        def _encoded(self, modality, items, contents):
            found = super()._encoded(modality, items, contents)
            return replace(found, arrays={"embedding": given(found.arrays["embedding"])})

    with pytest.raises(AnnotatorError, match=message):
        store.encoded(Wrong(), "caption", captions(3))

    assert_right(store.encoded(Hashing(), "caption", captions(3)), captions(3))


def test_items_left_out_are_noticed(store):
    """An annotator that gives fewer rows than items is at fault, not the data."""

    class Lazy(Hashing):
        def encode_captions(self, items):
            return super().encode_captions(items[:-1])

    with pytest.raises(AnnotatorError, match="gives 2 encodings for 3 captions"):
        store.encoded(Lazy(), "caption", captions(3))


def test_arrays_that_cannot_be_kept_are_refused(store):
    """Other shapes from chunk to chunk cannot become one array."""

    class Ragged(Hashing):
        def _encoded(self, modality, items, contents):
            found = super()._encoded(modality, items, contents)
            return replace(found, arrays={"embedding": np.zeros((len(items), self.calls), np.float32)})

    with pytest.raises(RetrievalError, match="all items must have arrays of one shape"):
        store.encoded(Ragged(), "caption", captions(7))


def test_two_runs_at_once_do_not_harm_each_other(store):
    """One finishes everything, consolidated, while the other is in the middle of it; both get all rows."""
    texts = captions(14)
    other = again(store)

    class Interrupted(Hashing):
        def encode_captions(self, items):
            if self.calls == 1:
                other.encoded(Hashing(), "caption", texts)
            return super().encode_captions(items)

    assert_right(store.encoded(Interrupted(), "caption", texts), texts)

    assert len(list(store.folder.glob("*/captions/*"))) == 1
    network = Hashing()
    assert_right(again(store).encoded(network, "caption", texts), texts)
    assert network.calls == 0


def test_chunks_of_a_run_beside_this_one_are_taken_over(store):
    """A chunk that another run has finished meanwhile is not computed again."""
    texts = captions(14)
    other = again(store)

    class Beside(Hashing):
        def encode_captions(self, items):
            if self.calls == 0:
                with pytest.raises(KeyboardInterrupt):
                    other.encoded(Stopping(), "caption", texts)
            return super().encode_captions(items)

    class Stopping(Hashing):
        def encode_captions(self, items):
            if self.calls == 2:
                raise KeyboardInterrupt
            return super().encode_captions(items)

    network = Beside()
    assert_right(store.encoded(network, "caption", texts), texts)

    assert network.calls == 4 - 1


def test_progress_counts_the_missing_items(store):
    """A resumed run starts its bar at what is left."""
    from contextlib import contextmanager

    seen = []

    @contextmanager
    def progress(label, total):
        done = []
        yield done.append
        seen.append((label, total, sum(done)))

    store.encoded(Hashing(), "caption", captions(9), progress=progress)
    again(store).encoded(Hashing(), "caption", captions(11), progress=progress)

    assert seen == [("encode hashing captions", 9, 9), ("encode hashing captions", 2, 2)]


def test_keys_tell_texts_and_ids_apart():
    """No two different captions have the same key, however their parts are cut."""
    items = captions(3)
    alike = [
        replace(items[0], external_id="1", text="23"),
        replace(items[0], external_id="12", text="3"),
        replace(items[0], external_id="", text="123"),
    ]

    assert len(set(caption_keys([*items, *alike]).tolist())) == 6


def test_a_document_that_changes_is_another_one():
    """Where an item of the images' side is made of texts, they are part of its key, with pictures or without."""
    documents = [ImageItem(1, "d", texts=texts) for texts in ((), ("a b",), ("a", "b"), ("b", "a"))]

    assert len(set(image_keys(documents, None).tolist())) == 4


def test_many_chunks_need_few_open_files(store):
    """A memory map keeps its file open; hundreds of chunks must not."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 12, before[1]))
    try:
        found = store.encoded(Hashing(), "caption", captions(120))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    assert_right(found, captions(120))


def test_rows_that_another_run_moves_meanwhile_are_found_again(store, monkeypatch):
    """It consolidates and removes the chunks after this run has looked them up."""
    texts = captions(10)
    real = encoding_shelf.write_part
    moved = []

    def moving(folder, keys, blocks):
        if len(keys) == len(texts) and not moved:
            moved.append(True)
            again(store).encoded(Hashing(), "caption", texts)
        real(folder, keys, blocks)

    monkeypatch.setattr(encoding_shelf, "write_part", moving)
    network = Hashing()

    assert_right(store.encoded(network, "caption", texts), texts)

    assert moved
    assert len(network.asked) == len(texts)
