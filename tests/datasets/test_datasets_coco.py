"""COCO's files: official captions, Karpathy's split, lists of caption ids, the compact table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mitl.datasets.coco import read_caption_ids, read_coco, read_compact
from mitl.errors import DatasetError
from mitl.records import IdKind

NAMES = {9: "COCO_val2014_000000000009.jpg", 42: "COCO_val2014_000000000042.jpg"}
ORIGIN = "https://s3.amazonaws.com/images.cocodataset.org"


def dump(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def official() -> dict[str, list[dict[str, object]]]:
    images = [
        {
            "id": id_,
            "file_name": name,
            "width": 640,
            "height": 480,
            "coco_url": f"http://images.cocodataset.org/val2014/{name}",
        }
        for id_, name in reversed(NAMES.items())
    ]
    annotations = [
        {"id": 100, "image_id": 42, "caption": "A dog. "},
        {"id": 21, "image_id": 9, "caption": "A cat"},
        {"id": 3, "image_id": 42, "caption": "Two dogs"},
    ]
    return {"images": images, "annotations": annotations}


def karpathy() -> dict[str, object]:
    def image(cocoid: int, split: str, *sentences: tuple[int, str]) -> dict[str, object]:
        return {
            "cocoid": cocoid,
            "filename": f"COCO_val2014_{cocoid:012d}.jpg",
            "filepath": "val2014",
            "split": split,
            "sentences": [{"sentid": sentid, "raw": raw} for sentid, raw in sentences],
        }

    images = [image(42, "test", (100, "a dog"), (3, "two dogs")), image(9, "val", (21, "a cat"))]
    return {"dataset": "coco", "images": images}


@pytest.fixture
def captions(tmp_path):
    return dump(tmp_path / "captions_val2014.json", official())


@pytest.fixture
def split(tmp_path):
    return dump(tmp_path / "dataset_coco.json", karpathy())


def ids(data):
    return [image.external_id for image in data.images], [caption.external_id for caption in data.captions]


def test_official_captions_are_read_in_order_of_value(captions):
    """Ids sort as integers (3, 21, 100), whatever the file's order; texts lose outer spaces only."""
    data = read_coco([captions])

    assert (data.kind, data.id_kind) == ("coco", IdKind.INTEGER)
    assert ids(data) == (["9", "42"], ["3", "21", "100"])
    assert (data.captions[2].text, data.captions[2].image_external_id) == ("A dog.", "42")


def test_images_are_addressed_on_the_https_origin(captions):
    """The plain http address of the official file is rewritten; size is kept."""
    image = read_coco([captions]).images[0]

    assert image.url == f"{ORIGIN}/val2014/COCO_val2014_000000000009.jpg"
    assert (image.width, image.height, image.file) == (640, 480, None)


def test_split_chooses_and_official_file_gives_the_text(captions, split):
    """With both files, images and captions are the split's, words and size the official ones."""
    data = read_coco([captions], karpathy=split, split="test")

    assert ids(data) == (["42"], ["3", "100"])
    assert data.captions[0].text == "Two dogs"
    assert data.images[0].width == 640


def test_several_splits_are_read_together(split):
    """As Karpathy's train and restval, on which papers train."""
    assert ids(read_coco(karpathy=split, split="test+val"))[0] == ["9", "42"]
    with pytest.raises(DatasetError, match="is of the split 'rest'; its splits: test, val"):
        read_coco(karpathy=split, split="test+rest")


def test_split_alone_is_enough(split):
    """Karpathy's file carries texts and file names."""
    data = read_coco(karpathy=split, split="val")

    assert ids(data) == (["9"], ["21"])
    assert data.captions[0].text == "a cat"
    assert data.images[0].url == f"{ORIGIN}/val2014/COCO_val2014_000000000009.jpg"


@pytest.mark.parametrize("suffix", [".npy", ".txt", ".json"])
def test_listed_captions_bring_their_images_only(tmp_path, captions, suffix):
    """A list in any of the three forms cuts the data set down."""
    path = tmp_path / f"ids{suffix}"
    if suffix == ".npy":
        np.save(path, np.array([100, 3]))
    else:
        path.write_text("100\n\n3  # two dogs\n" if suffix == ".txt" else "[100, 3]")

    assert read_caption_ids(path) == ["100", "3"]
    assert ids(read_coco([captions], caption_ids=path)) == (["42"], ["3", "100"])


def test_several_captions_files_are_one_data_set(tmp_path, captions):
    """train2014 and val2014 are read side by side."""
    other = {
        "images": [{"id": 5, "file_name": "COCO_train2014_000000000005.jpg"}],
        "annotations": [{"id": 7, "image_id": 5, "caption": "A hat"}],
    }
    data = read_coco([captions, dump(tmp_path / "captions_train2014.json", other)])

    assert ids(data) == (["5", "9", "42"], ["3", "7", "21", "100"])
    assert data.images[0].url == f"{ORIGIN}/train2014/COCO_train2014_000000000005.jpg"


def test_images_are_found_flat_or_in_their_folder(tmp_path, captions):
    """A file is found in the folder itself or under val2014; a missing one leaves the address."""
    (tmp_path / "images" / "val2014").mkdir(parents=True)
    (tmp_path / "images" / "val2014" / NAMES[9]).write_bytes(b"jpeg")
    data = read_coco([captions], images=tmp_path / "images")

    assert data.images[0].file == str((tmp_path / "images" / "val2014" / NAMES[9]).resolve())
    assert data.images[1].file is None
    assert data.images[1].url


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v["annotations"].append(dict(v["annotations"][0])), "caption id '100' comes twice"),
        (lambda v: v["images"].append(dict(v["images"][0])), "image id '42' comes twice"),
        (lambda v: v["images"].pop(), "belongs to image '9', which is not among the images"),
        (lambda v: v.pop("images"), "has no list 'images'; it should hold COCO captions"),
        (
            lambda v: v["annotations"][1].pop("caption"),
            r"entry 2 \(id 21\) of 'annotations' in .*captions.json' lacks 'caption'; it should hold",
        ),
        (lambda v: v["images"][0].pop("id"), "entry 1 of 'images' in .* lacks 'id'"),
        (lambda v: v["annotations"][0].update(id="x"), "malformed"),
        (lambda v: v["annotations"][0].update(id=1.7), "'1.7' is no whole number"),
        (lambda v: v["annotations"][0].update(id="1_7"), "'1_7' is no whole number"),
        (lambda v: v["annotations"][0].update(image_id=float("inf")), "'inf' is no whole number"),
        (
            lambda v: v["annotations"][1].update(caption=None),
            "caption '21' in .* has no text: 'None' stands for",
        ),
        (lambda v: v["annotations"][1].update(caption=" "), "caption '21' in .* has no text"),
        (
            lambda v: v["annotations"][1].update(caption="a\ud83d"),
            r"has the control character U\+D83D in its text",
        ),
        (lambda v: v["annotations"].clear(), "gives no captions"),
        (
            lambda v: v["images"][1].update(file_name="a\0.jpg"),
            r"entry 2 \(id \d+\) of 'images' .* control character U\+0000 in its file_name",
        ),
        (lambda v: v["images"][1].update(file_name=None), "it has no file_name"),
    ],
)
def test_inconsistent_official_files_are_refused(tmp_path, change, message):
    """Each fault of an official file has its line."""
    value = official()
    change(value)

    with pytest.raises(DatasetError, match=message) as caught:
        read_coco([dump(tmp_path / "captions.json", value)])
    assert "\n" not in str(caught.value)


def test_what_is_asked_for_and_not_there_is_named(tmp_path, captions, split):
    """A missing file, an unknown split, a caption outside the split, no file at all."""
    listed = tmp_path / "ids.txt"
    listed.write_text("21\n100\n")

    with pytest.raises(DatasetError, match=r"there is no file .*nowhere\.json"):
        read_coco([tmp_path / "nowhere.json"])
    with pytest.raises(DatasetError, match="is of the split 'tset'; its splits: test, val"):
        read_coco(karpathy=split, split="tset")
    with pytest.raises(DatasetError, match="caption id 21 is not in the split 'test' of"):
        read_coco([captions], karpathy=split, caption_ids=listed)
    with pytest.raises(DatasetError, match="no COCO file was given"):
        read_coco()


def test_files_that_contradict_each_other_are_refused(tmp_path, captions):
    """The split must name captions that exist, and give them the image that the official file gives."""
    lost, moved = karpathy(), karpathy()
    lost["images"][0]["sentences"].append({"sentid": 5, "raw": "?"})
    moved["images"][0]["cocoid"] = 9

    with pytest.raises(DatasetError, match="caption id 5 is not in the captions files"):
        read_coco([captions], karpathy=dump(tmp_path / "lost.json", lost))
    with pytest.raises(DatasetError, match=r"caption \d+ belongs to image 42 in the captions files and to 9"):
        read_coco([captions], karpathy=dump(tmp_path / "moved.json", moved))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.txt", b"12\ntwelve\n", "not a list of COCO caption ids"),
        ("ids.txt", b"# none\n", "lists no ids"),
        ("ids.txt", b"7\n7\n", "caption id '7' comes twice"),
        ("ids.json", b"{}", "holds no JSON list; write ids as"),
        ("ids.json", b"[1,", "not valid JSON"),
        ("ids.json", b"[" * 100_000, "not valid JSON"),
        ("ids.npy", b"not numpy", "not a NumPy array"),
        ("ids.npy", b"PK\x03\x04", "not a NumPy array"),
        ("ids.npy", b"\x93NUMPY\x01\x00\x02\x00{\n", "not a NumPy array"),
        (
            "ids.npy",
            b"\x93NUMPY\x01\x00\x46\x00{'descr': '<i8', 'fortran_order': False, 'shape': (999999999999999,)}\n",
            "not a NumPy array",
        ),
        (
            "ids.npy",
            b"\x93NUMPY\x01\x00\x4c\x00{'descr': '<i8', 'fortran_order': False, 'shape': (999999999999999999999,)}\n",
            "not a NumPy array",
        ),
        ("ids.csv", b"1", r"read from \.npy, \.txt or \.json"),
    ],
)
def test_bad_lists_of_ids_are_refused(tmp_path, name, content, message):
    """Each fault of a list has its line."""
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(DatasetError, match=message):
        read_caption_ids(path)


OF_TWO_BYTES = (b"\0\0\0\0\1\0\0\0\2\0\0\0", b"\xff\xfe")
"""Offsets and characters of two texts that are none."""


def compact(tmp_path, **columns):
    path = tmp_path / "captions.parquet"
    pq.write_table(
        pa.table({"caption_id": [21, 3], "image_id": [9, 42], "text": ["b", "a "], **columns}), path
    )
    return path


def test_compact_table_is_a_coco_data_set(tmp_path):
    """Ids, texts and the addresses of val2014; other columns do not matter."""
    data = read_compact(compact(tmp_path, extra=[1, 2]))

    assert (data.kind, data.id_kind) == ("coco", IdKind.INTEGER)
    assert ids(data) == (["9", "42"], ["3", "21"])
    assert data.captions[0].text == "a"
    assert data.images[1].url == f"{ORIGIN}/val2014/COCO_val2014_000000000042.jpg"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"caption_id": [3, 3]}, "caption id '3' comes twice"),
        ({"image_id": ["nine", "42"]}, "row 1 .* has image_id 'nine', but COCO's ids are integers"),
        ({"image_id": ["\u0669", "42"]}, "row 1 .* has image_id '\u0669', but COCO's ids are integers"),
        ({"text": [None, "a"]}, "caption '21' in .* has no text"),
        (
            {"image_id": [9, 9], "file_name": ["a.jpg", "b.jpg"]},
            "row 2 .* gives image 9 another file_name than before",
        ),
        ({"file_name": [9, None], "text": [" ", "a"]}, "caption '21' in .* has no text"),
        ({"text": ["a\0b", "a"]}, r"caption '21' in .* has the control character U\+0000"),
        ({"text": pa.array([2**53, 1], pa.int64()).cast(pa.timestamp("ms"))}, "is spoiled .*out of range"),
        (
            {"text": pa.Array.from_buffers(pa.string(), 2, [None, *map(pa.py_buffer, OF_TWO_BYTES)])},
            "Invalid UTF8",
        ),
    ],
)
def test_bad_compact_tables_are_refused(tmp_path, columns, message):
    """The row at fault is named."""
    with pytest.raises(DatasetError, match=message):
        read_compact(compact(tmp_path, **columns))


def test_compact_table_without_a_column_is_refused(tmp_path):
    """The missing column is named, and a file that is no Parquet is called so."""
    path = tmp_path / "captions.parquet"
    pq.write_table(pa.table({"caption_id": [1], "text": ["a"]}), path)
    with pytest.raises(DatasetError, match="no column 'image_id'"):
        read_compact(path)

    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, ["caption_id", "caption_id"]), path)
    with pytest.raises(DatasetError, match="two columns called 'caption_id'"):
        read_compact(path)

    path.write_bytes(b"PAR?")
    with pytest.raises(DatasetError, match="not a Parquet file"):
        read_compact(path)


@pytest.mark.shared
def test_real_test_split_is_read_whole(shared_data):
    """25,000 captions of 5,000 images, five each, in order of id, with the pictures that are at hand."""
    data = read_compact(
        shared_data / "coco_karpathy_test_captions" / "captions.parquet",
        images=shared_data / "coco_test_images" / "images",
    )
    keys = [int(caption.external_id) for caption in data.captions]

    assert (len(data.images), len(data.captions)) == (5000, 25000)
    assert keys == sorted(keys)
    assert data.images[0].file is not None
    assert 90 <= sum(image.file is not None for image in data.images) <= 98


@pytest.mark.parametrize(
    ("file_name", "kind"),
    [
        ("COCO_val2014_000000391895.jpg", "coco"),
        ("000000391895.jpg", "coco"),
        ("391895.jpg", "table"),
        ("café 1.png", "table"),
    ],
)
def test_captions_in_cocos_layout_are_cocos_where_its_file_names_say_so(tmp_path, file_name, kind):
    """A release of somebody's own pictures cites no paper of MS-COCO's."""
    path = tmp_path / "captions.json"
    images = [{"id": 391895, "file_name": file_name}]
    path.write_text(
        json.dumps({"images": images, "annotations": [{"id": 1, "image_id": 391895, "caption": "a dog"}]})
    )

    assert read_coco([path]).kind == kind
