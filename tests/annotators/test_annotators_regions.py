"""Region features in the three forms in which people have them, whole and damaged."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from memory_kit import peaks

from annotators.inputs.regions import COLUMNS, open_regions
from mitl.errors import AnnotatorError
from mitl.records import ImageItem

SHAPE = (4, 6)
IDS = ("391895", "60623", "483108")
FORMS = ("array", "folder", "table")


def features(ids: Sequence[str] = IDS, shape: tuple[int, int] = SHAPE) -> dict[str, np.ndarray]:
    """Non-negative regions by image id, as a detector pools them."""
    rng = np.random.default_rng(7)
    return {name: np.maximum(rng.standard_normal(shape), 0).astype(np.float32) for name in ids}


def item(name: str) -> ImageItem:
    return ImageItem(int("".join(filter(str.isdigit, name))), name)


def line(name: str, regions: np.ndarray) -> bytes:
    """A line of the tsv of origin."""
    text = base64.b64encode(regions.astype("<f4").tobytes())
    boxes = base64.b64encode(np.zeros((len(regions), 4), "<f4").tobytes())
    return b"\t".join([name.encode(), b"640", b"480", str(len(regions)).encode(), boxes, text]) + b"\n"


def written(folder: Path, form: str, found: dict[str, np.ndarray]) -> Path:
    """The features in a file or folder of this form."""
    if form == "table":
        path = folder / "test_36.tsv"
        path.write_bytes(b"".join(line(name, regions) for name, regions in found.items()))
    elif form == "folder":
        path = folder / "regions"
        path.mkdir()
        for name, regions in found.items():
            np.save(path / f"{name}.npy", regions)
    else:
        path = folder / "testall_ims.npy"
        np.save(path, np.stack(list(found.values())))
        (folder / "testall_ids.txt").write_text("\n".join(found) + "\n")
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_stored_regions_of_an_image(tmp_path: Path, form: str):
    """By the image's own id, in stored order and unchanged."""
    stored = features()

    regions = open_regions(written(tmp_path, form, stored), None, SHAPE)

    regions.require([item(name) for name in reversed(IDS)])
    for name in reversed(IDS):
        found = regions.read(item(name))
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, stored[name])


@pytest.mark.parametrize("form", FORMS)
def test_file_names_as_ids_are_found(tmp_path: Path, form: str):
    """Flickr30k's ids are file names; features go by the stem."""
    stored = features(("1000092795",))

    regions = open_regions(written(tmp_path, form, stored), None, SHAPE)

    np.testing.assert_array_equal(regions.read(item("1000092795.jpg")), stored["1000092795"])


def test_a_folder_may_bear_cocos_file_names_and_hold_archives(tmp_path: Path):
    """COCO_val2014_000000391895 is image 391895; ports of the detector write .npz with ``x`` or ``features``."""
    stored = features()
    for name, key in zip(IDS, ("x", "features", "x"), strict=True):
        np.savez(tmp_path / f"COCO_val2014_{int(name):012}.npz", **{key: stored[name]})

    regions = open_regions(tmp_path, None, SHAPE)

    regions.require([item(name) for name in IDS])
    np.testing.assert_array_equal(regions.read(item("391895")), stored["391895"])


def test_the_end_of_several_file_names_names_none(tmp_path: Path):
    """An image does not get the regions of another one whose file's name ends alike."""
    for name in ("cat_1", "dog_1", "dog_2"):
        np.save(tmp_path / f"{name}.npy", np.ones(SHAPE, np.float32))

    regions = open_regions(tmp_path, None, SHAPE)

    assert [regions.find(item(name)) for name in ("1", "2", "cat_1")] == [None, "2", "cat_1"]


def test_listed_ids_may_hold_blanks(tmp_path: Path):
    """One a line, as file names have them; a mark of UTF-8 in front is no part of the first."""
    path = written(tmp_path, "array", features())
    (tmp_path / "testall_ids.txt").write_text("cat 1.jpg\nb\nc\n", encoding="utf-8-sig")

    regions = open_regions(path, None, SHAPE)

    assert regions.find(item("cat 1.jpg")) == "cat 1.jpg"


@pytest.mark.parametrize("form", FORMS)
def test_the_fingerprint_follows_the_numbers(tmp_path: Path, form: str):
    """The same features have the same hash wherever they lie, and one other number has another."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    changed = features()
    changed[IDS[1]][2, 3] += 1

    one = open_regions(written(tmp_path / "a", form, features()), None, SHAPE)
    same = open_regions(written(tmp_path / "b", form, features()), None, SHAPE)
    other = open_regions(written(tmp_path / "c", form, changed), None, SHAPE)

    assert one.fingerprint == same.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("rows", "ids"),
    [
        pytest.param(1, 5, id="ids once a caption"),
        pytest.param(5, 1, id="rows once a caption"),
        pytest.param(5, 5, id="both once a caption"),
    ],
)
def test_rows_and_ids_may_come_once_a_caption(tmp_path: Path, rows: int, ids: int):
    """Five captions an image: the image of caption i is i // 5."""
    stored = features()
    path = tmp_path / "test_ims.npy"
    np.save(path, np.repeat(np.stack(list(stored.values())), rows, axis=0))
    np.save(tmp_path / "ids.npy", np.repeat([int(name) for name in IDS], ids))

    regions = open_regions(path, tmp_path / "ids.npy", SHAPE)

    for name in IDS:
        np.testing.assert_array_equal(regions.read(item(name)), stored[name])


def test_an_array_is_not_read_into_memory(tmp_path: Path):
    """Opening 40 MB and reading one image takes under 2 MB."""
    path = tmp_path / "ims.npy"
    np.lib.format.open_memmap(path, "w+", np.float32, (1000, 10, 1000))[:] = 1
    (tmp_path / "ims.ids.txt").write_text("\n".join(map(str, range(1000))))

    assert allocated(path) < 2e6


def test_a_table_is_not_read_into_memory(tmp_path: Path):
    """Neither is a tsv of 10 MB: a line at a time is."""
    path = tmp_path / "x.tsv.0"
    with path.open("wb") as file:
        for name in range(200):
            file.write(line(str(name), np.ones((10, 1000), np.float32)))

    assert allocated(path) < 2e6


READING = """
import sys
from pathlib import Path
from memory_kit import peak_of
from annotators.inputs.regions import open_regions
from mitl.records import ImageItem

path, shape = Path(sys.argv[1]), (10, 1000)

def read():
    regions = open_regions(path, None, shape)
    assert regions.read(ImageItem(7, "7")).sum() == shape[0] * shape[1]

print(peak_of(read))
"""


def allocated(path: Path) -> int:
    """By how many bytes memory grows at most while one image is looked up."""
    [peak] = peaks(READING, path)
    return peak


def test_the_last_line_of_an_image_counts(tmp_path: Path):
    """The tsv files of origin hold some images twice; a head line is passed over."""
    old, new = features(("5",)), {"5": np.ones(SHAPE, np.float32)}
    path = tmp_path / "x.tsv"
    path.write_bytes("\t".join(COLUMNS).encode() + b"\n" + line("5", old["5"]) + line("5", new["5"]))

    np.testing.assert_array_equal(open_regions(path, None, SHAPE).read(item("5")), new["5"])


# What is wrong with features


def assert_refused(
    path: Path, message: str, items: Sequence[ImageItem] = (), ids: Path | None = None
) -> None:
    """Opening, checking or reading these items gives this one line."""
    with pytest.raises(AnnotatorError, match=message) as caught:
        regions = open_regions(path, ids, SHAPE)
        regions.require(items)
        for one in items:
            regions.read(one)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_missing_images_are_counted(tmp_path: Path, form: str):
    """How many, of how many, the first, and that no extractor ships."""
    path = written(tmp_path, form, features())
    items = [item(name) for name in ("391895", "1", "60623", "2")]

    assert_refused(
        path, r"lacks the regions of 2 of 4 images; first: '1'; no extractor of regions ships", items
    )
    with pytest.raises(AnnotatorError, match="lacks the regions of image '1'; no extractor"):
        open_regions(path, None, SHAPE).read(item("1"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((5, 6), r"has 5 regions|holds float32 of shape \(3, 5, 6\)"),
        ((4, 3), r"features of shape \(4, 3\)|\(3, 4, 3\)"),
        ((4, 7), r"features of shape \(4, 7\)|\(3, 4, 7\)"),
    ],
)
def test_other_shapes_are_named(tmp_path: Path, form: str, shape: tuple[int, int], message: str):
    """More boxes than the network reads, or boxes of another detector."""
    path = written(tmp_path, form, features(shape=shape))

    assert_refused(path, message, [item(name) for name in IDS])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_named(tmp_path: Path, form: str, number: float):
    """With the image and how many."""
    stored = features()
    stored["60623"][1, 2:4] = number

    assert_refused(
        written(tmp_path, form, stored),
        "image '60623' .* hold 2 numbers that are not finite",
        [item(name) for name in IDS],
    )


def test_a_table_that_is_cut_off_is_named(tmp_path: Path):
    """At every place of its last line: in the base64, in the boxes, in the id."""
    whole = b"".join(line(name, regions) for name, regions in features().items())
    path = tmp_path / "x.tsv"
    last = len(whole) - len(line(IDS[-1], features()[IDS[-1]]))
    for end in range(last + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert_refused(path, "cut off|features of shape", [item(name) for name in IDS])


def test_base64_with_foreign_letters_is_named(tmp_path: Path):
    """Nothing is skipped silently."""
    path = tmp_path / "x.tsv"
    path.write_bytes(line("5", features(("5",))["5"])[:-3] + b"!!\n")

    assert_refused(path, "the features of image '5' .* are cut off or no base64", [item("5")])


def test_an_array_that_is_cut_off_is_named(tmp_path: Path):
    """Shorter than its head says."""
    path = written(tmp_path, "array", features())
    path.write_bytes(path.read_bytes()[:-10])

    assert_refused(path, "is not readable as numpy data")


def test_an_array_without_ids_says_where_they_belong(tmp_path: Path):
    """The file that is looked for, or the setting."""
    path = written(tmp_path, "array", features())
    (tmp_path / "testall_ids.txt").unlink()

    assert_refused(path, r"into 'testall_ids\.txt' beside it, or set 'feature_ids'")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("1 2", "has 3 rows, but .* lists 2 image ids"),
        ("1 2 1", "lists image '1' at rows 0 and 2"),
        (" ".join(map(str, range(15))), "in row 0 they differ; it should list image ids, not caption ids"),
    ],
)
def test_ids_that_cannot_be_right_are_named(tmp_path: Path, ids: str, message: str):
    """Too few, out of order, or ids of captions."""
    path = written(tmp_path, "array", features())
    (tmp_path / "other.txt").write_text(ids.replace(" ", "\n"))

    assert_refused(path, message, ids=tmp_path / "other.txt")


def test_other_files_are_named(tmp_path: Path):
    """A pickled array is never unpickled; ids belong to arrays; folders must hold something."""
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "x.h5").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    table = written(tmp_path, "table", features())

    assert_refused(tmp_path / "x.npy", "is not readable as numpy data")
    assert_refused(tmp_path / "x.h5", "is not a file of region features; it should be")
    assert_refused(tmp_path / "empty", "has no .npy or .npz file")
    assert_refused(table, "has ids of its own", ids=tmp_path / "x.h5")


def test_an_archive_with_other_arrays_is_named(tmp_path: Path):
    """It says what it holds and what it should hold."""
    np.savez(tmp_path / "5.npz", bbox=np.ones(SHAPE))

    assert_refused(tmp_path, "holds bbox; it should hold 'features' or 'x'", [item("5")])


def test_numpy_files_under_each_others_names_are_named(tmp_path: Path):
    """An archive called .npy, in a folder or by itself, and an array called .npz."""
    np.savez(tmp_path / "x.npz", features=np.ones(SHAPE, np.float32))
    np.save(tmp_path / "y.npy", np.ones(SHAPE, np.float32))
    for name, held, other in (("5.npy", "x.npz", "an archive"), ("5.npz", "y.npy", "one array")):
        folder = tmp_path / name[2:]
        folder.mkdir()
        (folder / name).write_bytes((tmp_path / held).read_bytes())
        assert_refused(folder, f"holds {other}", [item("5")])
    assert_refused(tmp_path / "npy" / "5.npy", "holds an archive, not one array; call it .npz")


def test_texts_are_no_features(tmp_path: Path):
    """An array of another type is named."""
    np.save(tmp_path / "5.npy", np.full(SHAPE, "x"))

    assert_refused(tmp_path, "are <U1; they should be float32", [item("5")])
