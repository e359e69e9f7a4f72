"""Tables of pairs, Flickr30k, tie order, and where pictures are."""

from __future__ import annotations

import csv
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from media_kit import jpeg

from mitl.datasets.assembling import assemble, id_kind, read_ids
from mitl.datasets.coco import read_compact, read_flickr30k
from mitl.datasets.files import text_of
from mitl.datasets.images import ImageFolder, Picture, UrlTemplate, locate
from mitl.datasets.table import read_table
from mitl.errors import DatasetError
from mitl.records import Caption, IdKind, Image


def table(tmp_path, text, name="pairs.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_table_makes_caption_ids_where_it_has_none(tmp_path):
    """Captions are numbered from 0 within their image, in the order of its rows; the ids become strings."""
    data = read_table(table(tmp_path, "image_id,caption\n10,ten\n9,nine\n10,ten again\n"))

    assert data.id_kind is IdKind.STRING
    assert [image.external_id for image in data.images] == ["10", "9"]
    assert [(c.external_id, c.text) for c in data.captions] == [
        ("10#0", "ten"),
        ("10#1", "ten again"),
        ("9#0", "nine"),
    ]


def test_table_of_integers_sorts_by_value(tmp_path):
    """Where all ids are integers, 9 comes before 10."""
    data = read_table(table(tmp_path, "image_id,caption_id,text,url\n10,2,ten,https://h/a\n9,11,nine,\n"))

    assert data.id_kind is IdKind.INTEGER
    assert [image.external_id for image in data.images] == ["9", "10"]
    assert [caption.external_id for caption in data.captions] == ["2", "11"]
    assert [image.url for image in data.images] == [None, "https://h/a"]


PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def parquet(tmp_path, columns, types=None):
    """A Parquet table; ``types`` for the columns whose type its values do not tell."""
    path = tmp_path / "pairs.parquet"
    given_types = types or {}
    arrays = {name: pa.array(values, given_types.get(name)) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), path)
    return path


def test_a_row_an_image_lists_its_captions(tmp_path):
    """Each caption of a list is one caption, with the id that stands in the same place."""
    columns = {"image_id": [2, 1], "caption": [["red", " blue "], ["green"]]}
    made = read_table(parquet(tmp_path, columns))
    told = read_table(parquet(tmp_path, {**columns, "caption_id": [[30, 20], [10]]}))

    assert [(c.external_id, c.text) for c in made.captions] == [
        ("1#0", "green"),
        ("2#0", "red"),
        ("2#1", "blue"),
    ]
    assert [(c.external_id, c.text) for c in told.captions] == [
        ("10", "green"),
        ("20", "blue"),
        ("30", "red"),
    ]


def test_pictures_inside_a_table_become_the_images_files(tmp_path):
    """As the datasets library writes them or as plain bytes; a second reading finds them there."""
    red, blue = jpeg("red"), jpeg("blue")
    nested = [
        {"bytes": red, "path": "a.jpg"},
        {"bytes": blue, "path": None},
        {"bytes": None, "path": "c.jpg"},
    ]
    columns = {"image_id": [1, 2, 3], "caption": ["a", "b", "c"]}
    folder = tmp_path / "dataset"
    for _ in range(2):
        data = read_table(parquet(tmp_path, {**columns, "photo": nested}, {"photo": PICTURE}), unpack=folder)

        assert [(tmp_path / image.file).read_bytes() for image in data.images[:2]] == [red, blue]
        assert data.images[2].file is None
        assert len(list((folder / "pictures").iterdir())) == 2
    plain = read_table(parquet(tmp_path, {**columns, "jpg": [blue, blue, red]}), unpack=tmp_path / "plain")
    assert [(tmp_path / image.file).read_bytes() for image in plain.images] == [blue, blue, red]
    assert len({image.file for image in plain.images}) == 2


@pytest.mark.parametrize(
    ("columns", "types", "named"),
    [
        ({"caption": ["['a red car', 'a car']"]}, {}, "row 1 of .* has a list written as text in 'caption'"),
        ({"caption": ['["a"]']}, {}, "a list written as text"),
        ({"caption": [[]]}, {"caption": pa.list_(pa.string())}, "has an empty caption among its 0"),
        ({"caption": [["a", None]]}, {}, "has an empty caption among its 2"),
        ({"caption": [["a", "b"]], "caption_id": [[1]]}, {}, "does not list an id for each"),
        ({"caption": [["a", "b"]], "caption_id": [1]}, {}, "does not list an id for each"),
        ({"caption": [[["a"]]]}, {}, "column 'caption' of .* holds list<.*one value a cell"),
        ({"caption": ["a"], "file": [["x.jpg"]]}, {}, "column 'file' of .* holds list<"),
        (
            {"caption": ["a"], "image": [b"no picture"]},
            {},
            "the picture in row 1 of .* cannot be read: it is none",
        ),
        ({"caption": ["a"], "any_name": [b"no picture"]}, {}, "the picture in row 1 of .* cannot be read"),
        (
            {"caption": ["a"], "x": [{"bytes": b""}], "y": [{"bytes": b""}]},
            {},
            "in several columns \\(x, y\\)",
        ),
    ],
)
def test_nested_cells_that_cannot_be_meant_are_refused(tmp_path, columns, types, named):
    """Nothing nested is read as its text, nothing inside is passed over, and no picture is left behind."""
    path = parquet(tmp_path, {"image_id": [1], **columns}, types)

    with pytest.raises(DatasetError, match=named):
        read_table(path, unpack=tmp_path / "dataset")
    assert not list(tmp_path.glob("dataset/pictures/*"))


def test_two_rows_of_an_image_hold_one_picture(tmp_path):
    """The same bytes are one file; others contradict."""
    columns = {"image_id": [1, 1], "caption": ["a", "b"]}
    same = read_table(parquet(tmp_path, {**columns, "image": [jpeg("red")] * 2}), unpack=tmp_path / "d")

    assert len(same.images) == 1
    with pytest.raises(DatasetError, match=r"row 2 of .* gives image '1' another picture than before"):
        read_table(
            parquet(tmp_path, {**columns, "image": [jpeg("red"), jpeg("blue")]}), unpack=tmp_path / "d"
        )


def test_other_tables_refuse_nested_cells_too(tmp_path):
    """Exclusion lists, ratings and compact captions say which column holds what."""
    path = parquet(tmp_path, {"caption_id": [1], "image_id": [1], "text": [["a", "b"]]})

    with pytest.raises(DatasetError, match=r"column 'text' of .* holds list<"):
        read_compact(path)


def test_zero_padded_ids_stay_strings(tmp_path):
    """007 and 7 are two images, so such ids are no integers."""
    data = read_table(table(tmp_path, "image_id,caption_id,text\n007,1,a\n7,2,b\n"))

    assert data.id_kind is IdKind.STRING
    assert [image.external_id for image in data.images] == ["007", "7"]


def test_files_are_found_beside_the_table_or_in_a_folder(tmp_path):
    """A relative file is looked up beside the table, or in the folder that was given."""
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"png")
    path = table(tmp_path, "image_id,caption,file\na,one,pictures/a.png\n")
    within = table(tmp_path, "image_id,caption,file\na,one,a.png\n", "within.csv")

    expected = str((tmp_path / "pictures" / "a.png").resolve())
    assert read_table(path).images[0].file == expected
    assert read_table(within, images=tmp_path / "pictures").images[0].file == expected
    windows = table(tmp_path, "image_id,caption,file\na,one,pictures\\a.png\n", "windows.csv")
    assert read_table(windows).images[0].file == expected
    assert read_table(within).images[0].file == expected  # the one folder beside the table that holds it
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "a.png").write_bytes(b"png")
    with pytest.raises(DatasetError, match=r"lie in 'others' and in 'pictures'; name .* with --images"):
        read_table(within)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "image_id,heading\n1,a\n",
            "no column for the caption, such as 'caption' or 'text'; its columns: 'image_id'",
        ),
        ("number,caption\n1,a\n", "no column for the image, .* say which it is with --columns image=COLUMN"),
        ("a.jpg,a dog\nb.jpg,a cat\n", "its columns: 'a.jpg', 'a dog'"),
        ("sep=;\nimage_id;caption\n1;a\n", "tells Excel how cells are separated; delete that line"),
        ("image_id,caption\n1,a\n2\n", "line 3 .* more or fewer cells"),
        ("image_id,caption\n1,a\n2,b,c\n", "line 3 .* more or fewer cells"),
        ("image_id,caption\n1,a\n2, \n", "row 2 .* has no caption"),
        ("image_id,caption\n,a\n", "row 1 .* has no image_id"),
        ("image_id,caption_id,caption\n1,5,a\n1,5,b\n", "caption id '5' comes twice"),
        ("image_id,caption,url\n1,a,https://h/1\n1,b,https://h/2\n", "row 2 .* another file or url"),
        ('image_id,caption\n1,"a\n', "not a CSV file in UTF-8"),
        ("image_id,caption\n", "gives no images"),
        ("", "no first line that names its columns"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, message):
    """Each fault of a table has its line, with the row where there is one."""
    with pytest.raises(DatasetError, match=message) as caught:
        read_table(table(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_table_that_is_not_text_is_refused(tmp_path):
    """Bytes that are no UTF-8, and a folder without any."""
    path = tmp_path / "pairs.csv"
    path.write_bytes(b"image_id,caption\n1,\xff\xfe\n")

    with pytest.raises(
        DatasetError, match=r"not in UTF-8 .* it should hold a table of pairs, saved as UTF-8"
    ):
        read_table(path)
    path.unlink()
    with pytest.raises(DatasetError, match="holds no table that is known; it should hold a table"):
        read_table(tmp_path)


REFUSED = re.compile(r"nan|NaN|null|None|<NA>|-?\d+\.0|-?\d+(\.\d+)?[eE]\+\d+|\[.*\]|.*[\ufffe\uffff].*")
"""Missing texts, ids that became fractions, lists as text, what no page may hold: test_own_tables has these."""
CELL = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=8
).filter(lambda text: text_of(text) is not None and not REFUSED.fullmatch(text))


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=12), parquet=st.booleans())
def test_table_survives_the_disk_in_code_point_order(tmp_path_factory, pairs, parquet):
    """Any text comes back unharmed from CSV and Parquet, images and captions sorted by code point or value."""
    path = tmp_path_factory.mktemp("table") / ("pairs.parquet" if parquet else "pairs.csv")
    if parquet:
        pq.write_table(pa.table({"image_id": [i for i, _ in pairs], "caption": [c for _, c in pairs]}), path)
    else:
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([("image_id", "caption"), *pairs])
    data = read_table(path)

    images = [image.external_id for image in data.images]
    assert images == sorted({image for image, _ in pairs})
    assert sorted((c.image_external_id, c.text) for c in data.captions) == sorted(pairs)


@settings(max_examples=50, deadline=None)
@given(numbers=st.lists(st.integers(-(10**17), 10**17), min_size=1, unique=True))
def test_integer_ids_are_ordered_by_value(numbers):
    """A data set is the same whatever the order of its source, and integers sort by value."""
    images = [Image(str(number)) for number in numbers]
    captions = [Caption(str(number), str(number), "text") for number in numbers]
    data = assemble("t", "table", images, captions, source="here")

    assert data == assemble("t", "table", images[::-1], captions[::-1], source="here")
    assert data.id_kind is IdKind.INTEGER
    assert [int(image.external_id) for image in data.images] == sorted(numbers)


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (["1", "-2", "0"], IdKind.INTEGER),
        (["1", "01"], IdKind.STRING),
        (["-0"], IdKind.STRING),
        (["1", "a"], IdKind.STRING),
        (["٣"], IdKind.STRING),
        ([str(10**30)], IdKind.STRING),
        ([""], IdKind.STRING),
    ],
)
def test_only_plain_integers_are_integer_ids(ids, kind):
    """An id that would be printed otherwise, or needs more than 64 bits, is a string."""
    assert id_kind(ids) is kind


def flickr(tmp_path):
    images = [
        {"filename": name, "split": split, "sentences": [{"sentid": 0, "raw": raw} for raw in texts]}
        for name, split, texts in (
            ("9.jpg", "test", ["A man . ", "A boy ."]),
            ("10.jpg", "test", ["A woman ."]),
            ("11.jpg", "train", ["A girl ."]),
        )
    ]
    path = tmp_path / "dataset_flickr30k.json"
    path.write_text(json.dumps({"images": images}))
    return path


def test_flickr30k_has_file_names_as_ids(tmp_path):
    """Images sort by code point, captions are numbered within their image."""
    data = read_flickr30k(flickr(tmp_path))

    assert (data.kind, data.id_kind) == ("flickr30k", IdKind.STRING)
    assert [image.external_id for image in data.images] == ["10.jpg", "9.jpg"]
    assert [caption.external_id for caption in data.captions] == ["10.jpg#0", "9.jpg#0", "9.jpg#1"]
    assert data.captions[1].text == "A man ."


def test_flickr30k_takes_files_and_addresses(tmp_path):
    """Files by name, addresses by template."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "9.jpg").write_bytes(b"jpeg")
    data = read_flickr30k(
        flickr(tmp_path), images=tmp_path / "images", url_template="https://h/f/{file_name}"
    )

    assert [image.url for image in data.images] == ["https://h/f/10.jpg", "https://h/f/9.jpg"]
    assert [image.file is not None for image in data.images] == [False, True]


def test_flickr30k_without_its_split_is_refused(tmp_path):
    """The splits that the file has are named."""
    with pytest.raises(DatasetError, match="split 'val'; its splits: test, train"):
        read_flickr30k(flickr(tmp_path), split="val")


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("https://h/{image_id}.jpg", "https://h/42.jpg"),
        ("https://h/{image_id:012d}.jpg", "https://h/000000000042.jpg"),
        ("http://h/{folder}/{file_name}", "http://h/val2014/a%20b.jpg"),
    ],
)
def test_templates_make_addresses(template, url):
    """Ids can be padded, names are escaped."""
    assert UrlTemplate(template).url(Picture("42", "a b.jpg", "val2014")) == url


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("https://h/{name}.jpg", r"names \{name\}; known: \{image_id\}, \{file_name\}, \{folder\}"),
        ("https://h/{image_id.__class__}", "known:"),
        ("https://h/{}", "known:"),
        ("https://h/{image_id", "malformed"),
        ("https://h/picture.jpg", "gives images the same address"),
        ("https://h/{folder}/picture.jpg", "gives images the same address"),
        ("file:///{image_id}", "should start with https://"),
        ("https://[h/{image_id}", "and name a host"),
    ],
)
def test_bad_templates_are_refused(template, message):
    """A template must be an http address that differs from image to image."""
    with pytest.raises(DatasetError, match=message):
        UrlTemplate(template)


def test_template_that_does_not_fit_an_image_is_refused():
    """Padding needs a number, and a field needs a value."""
    with pytest.raises(DatasetError, match=r"image 'a\.jpg' does not fit"):
        UrlTemplate("https://h/{image_id:012d}").url(Picture("a.jpg"))
    with pytest.raises(DatasetError, match="image '1' has no folder"):
        UrlTemplate("https://h/{folder}/{image_id}").url(Picture("1"))


def test_folder_gives_nothing_from_outside(tmp_path):
    """A name that climbs out of the folder is not followed."""
    (tmp_path / "images").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    folder = ImageFolder(tmp_path / "images")

    assert folder.find(Picture("1", "../secret.txt")) is None
    assert folder.find(Picture("1", str(tmp_path / "secret.txt"))) is None


def test_folder_of_no_use_is_refused(tmp_path):
    """A folder that is not there, and one that holds none of the images."""
    with pytest.raises(DatasetError, match="no image folder"):
        locate([Picture("1", "a.jpg")], folder=tmp_path / "nowhere")
    with pytest.raises(
        DatasetError, match=r"holds none of the 1 images; .* such as 'a\.jpg', and holds nothing"
    ):
        locate([Picture("1", "a.jpg")], folder=tmp_path)
    (tmp_path / "A.JPEG").write_bytes(b"x")
    with pytest.raises(DatasetError, match=r"such as 'a\.jpg', and holds 'A\.JPEG'"):
        locate([Picture("1", "a.jpg")], folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("ids.txt", "10.jpg#0\n\n# all of 9\n9.jpg#1  # the second\n", ["10.jpg#0", "9.jpg#1"]),
        ("ids.txt", "\ufeff007\r\na b\r\n", ["007", "a b"]),
        ("ids.json", '["a", 7]', ["a", "7"]),
    ],
)
def test_lists_of_ids_keep_the_ids_whole(tmp_path, name, content, ids):
    """An id that holds a # is not taken for a comment, nor a byte order mark for a part of the first."""
    assert read_ids(table(tmp_path, content, name)) == ids


def test_an_id_with_a_mark_of_comments_is_read_whole(tmp_path):
    """If the data set has it."""
    listed = table(tmp_path, "take #2.png \nb.png # the second\n", "ids.txt")
    assert read_ids(listed, {"take #2.png", "take", "b.png"}) == ["take #2.png", "b.png"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.txt", "# nothing\n", "lists no ids"),
        ("ids.json", "{}", "holds no JSON list"),
        ("ids.npy", "no array", "not a NumPy array"),
    ],
)
def test_bad_lists_of_ids_are_refused(tmp_path, name, content, message):
    """Each fault of a list has its line."""
    with pytest.raises(DatasetError, match=message):
        read_ids(table(tmp_path, content, name))
