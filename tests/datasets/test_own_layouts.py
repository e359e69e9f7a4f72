"""Layouts that data sets are handed round in: what `datasets` writes, folders of pictures, WebDataset shards."""

from __future__ import annotations

import io
import json
import random
import tarfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from media_kit import jpeg
from PIL import Image

from mitl.datasets.checking import check_items
from mitl.datasets.table import TableReading, Told, read_table
from mitl.errors import DatasetError, MitlError, UsageError

WRITTEN = ("saved/test/data-00000-of-00001.arrow", "pushed/data/test-00000-of-00001.parquet")
RED, BLUE, GREEN = (jpeg(colour) for colour in ("red", "blue", "green"))


def read(path, tmp_path, **how):
    """(the data set, each image's bytes by its id, what was told)."""
    told = Told()
    data = read_table(path, unpack=tmp_path / "project" / "dataset", reading=TableReading(**how), told=told)
    files = {image.external_id: image.file for image in data.images}
    contents = {
        id_: (tmp_path / "project" / file).read_bytes() if file else None for id_, file in files.items()
    }
    return data, contents, told.lines


def texts(data):
    return [(caption.image_external_id, caption.text) for caption in data.captions]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """What the ``datasets`` library writes of two splits of pictures with lists of captions."""
    datasets = pytest.importorskip(
        "datasets", minversion="5", reason="the layouts are written by the library itself"
    )
    folder = tmp_path_factory.mktemp("hub")
    text = datasets.Value("string")
    features = datasets.Features({"image": datasets.Image(), "caption": datasets.List(text), "img_id": text})
    rows = {
        "train": [{"image": {"bytes": RED, "path": "r.jpg"}, "caption": ["red", "a red one"], "img_id": "1"}],
        "test": [
            {"image": {"bytes": BLUE, "path": None}, "caption": ["blue"], "img_id": "2"},
            {"image": {"bytes": GREEN, "path": None}, "caption": ["green"], "img_id": "3"},
        ],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {name: datasets.Dataset.from_list(some, features=features) for name, some in rows.items()}
        datasets.DatasetDict(made).save_to_disk(folder / "saved")
        for name, one in made.items():
            (folder / "pushed" / "data").mkdir(parents=True, exist_ok=True)
            one.to_parquet(folder / "pushed" / "data" / f"{name}-00000-of-00001.parquet")
    return folder


@pytest.mark.parametrize("layout", ["saved", "pushed"])
def test_what_the_datasets_library_writes_is_read_by_split(hub, tmp_path, layout):
    """Pictures come out byte for byte, lists become captions; a folder of two splits wants one named."""
    with pytest.raises(UsageError, match=r"holds the splits t.*, t.*; name one with --split"):
        read(hub / layout, tmp_path)
    with pytest.raises(UsageError, match="no split 'val'"):
        read(hub / layout, tmp_path, split="val")
    data, contents, told = read(hub / layout, tmp_path, split="test")
    train, _, _ = read(hub / layout, tmp_path, split="train")

    assert contents == {"2": BLUE, "3": GREEN}
    assert texts(data) == [("2", "blue"), ("3", "green")]
    assert texts(train) == [("1", "red"), ("1", "a red one")]
    assert told == [
        "read as: image = column `image` (pictures), image id = column `img_id`, caption = column `caption` (lists)"
    ]


@pytest.mark.parametrize("layout", ["saved/test", "pushed/data/test-00000-of-00001.parquet"])
def test_one_split_of_it_needs_none_named(hub, tmp_path, layout):
    """A folder of `save_to_disk` without splits, and one file."""
    assert len(read(hub / layout, tmp_path)[0].images) == 2


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(WRITTEN), place=st.floats(0, 1, exclude_max=True), bytes_=st.binary(max_size=12))
def test_spoiled_bytes_are_read_or_one_line(hub, tmp_path_factory, name, place, bytes_):
    """Wherever they are; unlooked at, some of them would end the whole program."""
    folder = tmp_path_factory.mktemp("spoiled")
    content = bytearray((hub / name).read_bytes())
    at = int(place * len(content))
    content[at : at + len(bytes_)] = bytes_
    (folder / Path(name).name).write_bytes(content)
    try:
        data, _, _ = read(folder / Path(name).name, folder)
    except MitlError as error:
        assert "\n" not in str(error)
    else:
        assert data.images and data.captions


def test_half_of_a_saved_data_set_is_refused(hub, tmp_path):
    """In one line, and nothing is written."""
    for name in WRITTEN:
        whole = (hub / name).read_bytes()
        part = tmp_path / Path(name).name
        part.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DatasetError) as caught:
            read(part, tmp_path)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("dataset_dict.json", '{"splits": ["test"]}', r"there is no file .*test'"),
        ("dataset_dict.json", "[]", "lists no 'splits'"),
        ("state.json", '{"_data_files": [{"filename": "data.arrow"}]}', r"there is no file .*data\.arrow"),
        ("state.json", '{"_data_files": [{}]}', "lists no '_data_files'"),
        ("state.json", "{", "is not valid JSON"),
    ],
)
def test_saved_data_sets_that_lack_something_are_one_line(tmp_path, name, content, named):
    """A folder that was copied in part."""
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=named) as caught:
        read(tmp_path, tmp_path)
    assert "\n" not in str(caught.value)


def test_pictures_without_any_name_are_numbered_by_their_first_row(tmp_path):
    """The same picture in two rows is one image."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"image": [RED, BLUE, RED], "text": ["a", "b", "c"]}), tmp_path / "t.parquet")
    data, contents, told = read(tmp_path / "t.parquet", tmp_path)

    assert contents == {"0": RED, "1": BLUE}
    assert texts(data) == [("0", "a"), ("0", "c"), ("1", "b")]
    assert "image id = number of the first row with the picture, from 0" in told[0]


def test_paths_within_pictures_are_ids_where_they_tell_pictures_apart(tmp_path):
    """Else the rows' numbers are, and the same picture under two names is one image."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for paths, ids in ((["r.jpg", "b.jpg"], {"r.jpg", "b.jpg"}), (["x.jpg", "x.jpg"], {"0", "1"})):
        cells = [{"bytes": content, "path": path} for content, path in zip((RED, BLUE), paths, strict=True)]
        pq.write_table(pa.table({"image": cells, "text": ["a", "b"]}), tmp_path / "t.parquet")
        assert set(read(tmp_path / "t.parquet", tmp_path)[1]) == ids
    cells = [{"bytes": RED, "path": "r.jpg"}, {"bytes": RED, "path": "again.jpg"}]
    pq.write_table(pa.table({"image": cells, "text": ["a", "b"]}), tmp_path / "t.parquet")
    assert texts(read(tmp_path / "t.parquet", tmp_path)[0]) == [("0", "a"), ("0", "b")]


def test_pictures_that_are_named_and_not_inside_are_told_by_their_names(tmp_path):
    """As `to_parquet` of the datasets library leaves them; captions of one picture stay with it."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cells = [{"bytes": None, "path": name} for name in ("a.jpg", "a.jpg", "b.jpg")]
    pq.write_table(
        pa.table({"image": pa.array(cells, struct), "text": ["one", "two", "three"]}), tmp_path / "t.parquet"
    )

    data, _, _ = read(tmp_path / "t.parquet", tmp_path)

    assert texts(data) == [("a.jpg", "one"), ("a.jpg", "two"), ("b.jpg", "three")]
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "b.jpg").write_bytes(BLUE)
    placed = read_table(tmp_path / "t.parquet", images=tmp_path / "pictures", unpack=tmp_path / "dataset")
    assert [image.file for image in placed.images] == [None, str(tmp_path / "pictures" / "b.jpg")]
    assert placed.captions == data.captions


def test_photographs_of_phones_and_large_ones_are_pictures_like_others(tmp_path, recwarn):
    """MPO is a JPEG with another behind it; what Pillow says of 100 million pixels is nobody's to mend."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    phone, large = io.BytesIO(), io.BytesIO()
    small = Image.new("RGB", (8, 8))
    small.save(phone, "MPO", save_all=True, append_images=[small])
    Image.new("1", (10_000, 9_000)).save(large, "PNG")
    cells = [{"bytes": kind.getvalue(), "path": f"{n}.jpg"} for n, kind in enumerate((phone, large))]
    pq.write_table(pa.table({"image": cells, "text": ["a", "b"]}), tmp_path / "t.parquet")
    data, _, _ = read(tmp_path / "t.parquet", tmp_path)

    assert [Path(image.file).suffix for image in data.images] == [".jpg", ".png"]
    assert not recwarn.list and check_items(data, tmp_path / "project", {}).lines == ()


def test_parts_of_a_parquet_that_are_missing_or_differ_are_refused(tmp_path):
    """The names of parts tell how many there are; pictures within beside names of pictures are no one column."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    first, second = (tmp_path / f"test-0000{n}-of-00002.parquet" for n in range(2))
    pq.write_table(pa.table({"image": [RED], "caption": ["red"]}), first)
    for split in (None, "test"):
        with pytest.raises(DatasetError, match=r"lacks files of the split .* \(there: 1 of 2 of 'test'\)"):
            read(tmp_path, tmp_path, split=split)
    pq.write_table(pa.table({"image": ["blue.jpg"], "caption": ["blue"]}), second)
    with pytest.raises(
        DatasetError, match=f"'{second.name}' .* has other columns than '{first.name}', or other"
    ):
        read(tmp_path, tmp_path)
    pq.write_table(pa.table({"image": [None], "caption": ["blue"]}), second)
    assert len(read(tmp_path, tmp_path)[0].images) == 2
    pq.write_table(pa.table({"image": [None], "caption": ["blue"]}), tmp_path / f"{second.stem}-0a1b.parquet")
    with pytest.raises(DatasetError, match=r"two versions \(there: 3 of 2 of 'test'\)"):
        read(tmp_path, tmp_path)


def test_splits_in_the_names_of_parquet_files_are_not_mixed(tmp_path):
    """One has to be named; files without a split are one table, which is told."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for folder, names in (("a", ("my_train", "my_test-1", "my_test-2")), ("b", ("one", "two"))):
        (tmp_path / folder).mkdir()
        for name in names:
            table = pa.table({"image": [f"{name}.jpg"], "caption": ["x"]})
            pq.write_table(table, tmp_path / folder / f"{name}.parquet")
    told = Told()

    with pytest.raises(UsageError, match="holds the splits test, train; name one with --split"):
        read_table(tmp_path / "a")
    test = read_table(tmp_path / "a", reading=TableReading(split="test"))
    both = read_table(tmp_path / "b", told=told)

    assert [image.external_id for image in test.images] == ["my_test-1.jpg", "my_test-2.jpg"]
    (tmp_path / "wds").mkdir()
    for part in ("train-000", "test-000", "test-001"):
        shard(tmp_path / "wds" / f"{part}.tar", [(part, RED, "red")])
    with pytest.raises(UsageError, match="holds the splits test, train; name one with --split"):
        read_table(tmp_path / "wds")
    assert len(read_table(tmp_path / "wds", reading=TableReading(split="test")).captions) == 2
    assert len(both.images) == 2 and told.lines[1] == "2 files read as one table: one.parquet, two.parquet"


def test_pictures_beside_sounds_in_a_parquet_are_asked_for(tmp_path):
    """Their cells have the same type, and the file's features tell them apart."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = [{"bytes": b"RIFF", "path": "a.wav"}]
    features = {"info": {"features": {"audio": {"_type": "Audio"}, "image": {"_type": "Image"}}}}
    table = pa.table({"audio": cells, "image": [{"bytes": RED, "path": "a.jpg"}], "caption": ["a"]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(table, tmp_path / "t.parquet")

    with pytest.raises(DatasetError, match=r"in several columns \(audio, image\), .* --columns sound=audio"):
        read(tmp_path / "t.parquet", tmp_path)
    assert read(tmp_path / "t.parquet", tmp_path, columns=("image=image",))[1] == {"a.jpg": RED}


def test_a_folder_of_pictures_with_captions_txt(tmp_path):
    """As Flickr8k: the table beside the folder of the pictures, or within it."""
    for place in (tmp_path / "f8k" / "Images", tmp_path / "flat"):
        place.mkdir(parents=True)
        (place / "a.jpg").write_bytes(RED)
        (place / "b.jpg").write_bytes(BLUE)
        table = (place.parent if place.name == "Images" else place) / "captions.txt"
        table.write_text('image,caption\na.jpg,a red one\na.jpg,"red, all of it"\nb.jpg,a blue one\n')
        data, contents, _ = read(table.parent, tmp_path)
        assert contents == {"a.jpg": RED, "b.jpg": BLUE}
        assert texts(data) == [("a.jpg", "a red one"), ("a.jpg", "red, all of it"), ("b.jpg", "a blue one")]


def test_an_imagefolder_has_a_table_in_each_split(tmp_path):
    """Names are relative to the split's folder."""
    for split, content in (("train", RED), ("test", BLUE)):
        (tmp_path / "set" / split).mkdir(parents=True)
        (tmp_path / "set" / split / "0.jpg").write_bytes(content)
        row = {"file_name": "0.jpg", "text": split}
        (tmp_path / "set" / split / "metadata.jsonl").write_text(json.dumps(row) + "\n")

    assert read(tmp_path / "set", tmp_path, split="test")[1] == {"0.jpg": BLUE}
    assert read(tmp_path / "set" / "train", tmp_path)[1] == {"0.jpg": RED}
    with pytest.raises(UsageError, match="holds the splits test, train"):
        read(tmp_path / "set", tmp_path)


def test_several_tables_in_a_folder_are_asked_about(tmp_path):
    """And so is what nobody knows."""
    for name in ("a.csv", "b.tsv"):
        (tmp_path / name).write_text("image,caption\n")
    with pytest.raises(
        DatasetError, match=r"several tables \(a\.csv, b\.tsv\); name one of them, as .*/a\.csv"
    ):
        read(tmp_path, tmp_path)
    (tmp_path / "notes.docx").write_bytes(b"x")
    with pytest.raises(DatasetError, match=r"'notes\.docx' is of no kind that is known"):
        read(tmp_path / "notes.docx", tmp_path)


SAMPLES = (("a/0", RED, "red"), ("a/1", BLUE, "blue"))


def shard(path, samples=SAMPLES, *, text="txt", picture="jpg"):
    with tarfile.open(path, "w") as tar:
        for key, content, words in samples:
            fields = {
                picture: content,
                "cls": b"1",
                "json": json.dumps({"key": key, "caption": words}).encode(),
            }
            if text:
                fields[text] = words.encode()
            for field, data in fields.items():
                member = tarfile.TarInfo(f"{key}.{field}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def test_shards_are_read_one_after_another(tmp_path):
    """A sample is an image with its text; where there is no text, the JSON has it."""
    (tmp_path / "shards").mkdir()
    shard(tmp_path / "shards" / "s-000000.tar")
    shard(tmp_path / "shards" / "s-000001.tar", [("a/2", GREEN, "green")], picture="PNG")
    data, contents, told = read(tmp_path / "shards", tmp_path)
    json_only, _, _ = read(shard(tmp_path / "json.tar", text=None), tmp_path)

    assert contents == {"a/0": RED, "a/1": BLUE, "a/2": GREEN}
    assert texts(data) == [("a/0", "red"), ("a/1", "blue"), ("a/2", "green")]
    assert told == [
        "read as: image = column `image` (pictures), image id = column `__key__`, caption = column `txt`",
        "2 files read as one table: s-000000.tar, s-000001.tar",
    ]
    assert texts(json_only) == texts(data)[:2]


def test_what_belongs_to_no_sample_is_passed_over(tmp_path):
    """As WebDataset passes it over: macOS's own files between the others, a README, what is said of the shard."""
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name, content in (
            ("README", b"x"),
            ("__meta__/info.json", b'{"txt": 1}'),
            ("._0.jpg", b"x"),
            ("0.jpg", RED),
            ("._0.txt", b"\xff"),
            ("0.txt", b"red"),
            ("__1.jpg", BLUE),
            ("__1.txt", b"blue"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

    assert texts(read(tmp_path / "s.tar", tmp_path)[0]) == [("0", "red"), ("__1", "blue")]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 20479))
def test_a_shard_that_ends_anywhere_early_is_one_line(tmp_path_factory, cut):
    """Also between two files, where tarfile sees a whole archive; nothing but zeros may be missing."""
    folder = tmp_path_factory.mktemp("cut")
    path = shard(folder / "s.tar")
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    ends = -(-len(whole.rstrip(b"\0")) // 512) * 512  # what follows is padding, of which one block says so
    if cut >= ends + 512:
        assert len(read(path, folder)[0].images) == 2
        return
    with pytest.raises(DatasetError, match=r"ends early|is no tar file|gives no images") as caught:
        read(path, folder)
    assert "\n" not in str(caught.value)
    assert not (folder / "project").exists()


@pytest.mark.parametrize("packed", ["gz", "xz", "bz2"])
def test_a_spoiled_shard_that_is_packed_is_one_line(tmp_path, packed):
    """Whatever the unpacking says of it."""
    with tarfile.open(tmp_path / f"s.tar.{packed}", f"w:{packed}") as tar:
        for key in range(40):
            member = tarfile.TarInfo(f"{key}.txt")
            member.size = 2000
            tar.addfile(member, io.BytesIO(random.Random(key).randbytes(1000).hex().encode()))
    content = (tmp_path / f"s.tar.{packed}").read_bytes()
    for at in range(len(content) // 8, len(content), len(content) // 8):
        (tmp_path / f"s.tar.{packed}").write_bytes(content[:at] + b"spoiled" + content[at + 7 :])
        with pytest.raises(DatasetError) as caught:
            read(tmp_path / f"s.tar.{packed}", tmp_path)
        assert "\n" not in str(caught.value)


def test_a_text_of_a_sample_begins_behind_the_mark_of_its_encoding(tmp_path):
    """Windows writes one, which nobody sees."""
    with tarfile.open(tmp_path / "s.tar", "w") as tar:
        for name, content in (("0.jpg", RED), ("0.txt", "\ufeffred".encode())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))

    assert texts(read(tmp_path / "s.tar", tmp_path)[0]) == [("0", "red")]


def test_samples_that_cannot_be_meant_are_refused(tmp_path):
    """Two pictures, the same key again, a text that is no UTF-8, JSON that is none."""
    with tarfile.open(tmp_path / "two.tar", "w") as tar:
        for name in ("0.jpg", "0.png", "0.txt"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(DatasetError, match=r"sample '0' of .* holds two images"):
        read(tmp_path / "two.tar", tmp_path)
    again = shard(tmp_path / "again.tar", [*SAMPLES, ("a/0", GREEN, "green")])
    with pytest.raises(DatasetError, match="gives image 'a/0' another picture than before"):
        read(again, tmp_path)
    for field, content in (("txt", b"\xff\xfe"), ("json", b"{"), ("json", b'{"a": 1, "a": 2}')):
        with tarfile.open(tmp_path / "bad.tar", "w") as tar:
            member = tarfile.TarInfo(f"0.{field}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        with pytest.raises(DatasetError, match=rf"'0\.{field}' in shard .* is not (in UTF-8|valid JSON)"):
            read(tmp_path / "bad.tar", tmp_path)


@pytest.mark.parametrize(
    ("name", "size", "said"), [("0.txt", 10_000_001, "10 MB"), ("0.jpg", 1_000_000_001, "1,000 MB")]
)
def test_a_file_of_a_sample_that_would_fill_the_memory_is_refused(tmp_path, name, size, said):
    """Before any of it is read or anything is written; of what is never read, any size will do."""
    with tarfile.open(tmp_path / "large.tar.gz", "w:gz") as tar:
        for own, claimed in (("0.npy", 20_000_000), (name, size)):
            member = tarfile.TarInfo(own)
            member.size = claimed
            tar.addfile(member, io.BytesIO(bytes(claimed)) if own == "0.npy" else None)

    with pytest.raises(DatasetError, match=rf"'{name}' in shard .* but up to {said} are read"):
        read(tmp_path / "large.tar.gz", tmp_path)

    assert not (tmp_path / "project").exists()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("sample", "split", "images", "captions"),
    [
        ("images_captions_txt", None, 2, 3),
        ("imagefolder", "train", 3, 5),
        ("imagefolder", "test", 1, 1),
        ("hf_parquet", None, 3, 5),
        ("hf_save_to_disk", "test", 3, 5),
        ("webdataset", None, 3, 3),
        ("flickr30k/results.csv", None, 2, 10),
        ("flickr30k/results_20130124.token", None, 2, 10),
    ],
)
def test_samples_of_the_fields_layouts_are_read(shared_data, tmp_path, sample, split, images, captions):
    """Files that were laid out by others after what they count in the released ones."""
    data, contents, _ = read(shared_data / "format_samples" / sample, tmp_path, split=split, skip_empty=True)

    assert (len(data.images), len(data.captions)) == (images, captions)
    assert sample.startswith("flickr30k") or all(content[:2] == b"\xff\xd8" for content in contents.values())
