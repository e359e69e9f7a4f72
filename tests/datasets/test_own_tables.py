"""Tables as people have them: natural column names, what is said about them, and what is refused."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.datasets.table import TableReading, Told, read_table
from mitl.errors import DatasetError, MitlError, UsageError


def written(tmp_path, content, name="pairs.csv"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def lines_of(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


PAIRS = (("a.jpg", "a dog, big"), ("b.jpg", "a cat"))


def read(path, *columns, **how):
    """(images' ids, captions as (id, image, text), what was told)."""
    told = Told()
    data = read_table(path, reading=TableReading(columns, **how), told=told)
    captions = [(c.external_id, c.image_external_id, c.text) for c in data.captions]
    return [image.external_id for image in data.images], captions, told.lines


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (
            "filename,caption",
            "image = column `filename`, image id = column `filename`, caption = column `caption`",
        ),
        (
            "File Name,Text",
            "image = column `File Name`, image id = column `File Name`, caption = column `Text`",
        ),
        ("image,title", "image = column `image`, image id = column `image`, caption = column `title`"),
        (
            "filepath,sentence",
            "image = column `filepath`, image id = column `filepath`, caption = column `sentence`",
        ),
        ("id,caption", "image id = column `id`, caption = column `caption`"),
        (
            "image_url,text",
            "image id = column `image_url`, image address = column `image_url`, caption = column `text`",
        ),
    ],
)
def test_natural_names_are_understood_and_told(tmp_path, header, told):
    """Whatever the column is called in the field, the line says how it was read."""
    images, captions, said = read(written(tmp_path, f"{header}\na.jpg,a dog\nb.jpg,a cat\n"))

    assert said == [f"read as: {told}"]
    assert images == ["a.jpg", "b.jpg"]
    assert captions == [("a.jpg#0", "a.jpg", "a dog"), ("b.jpg#0", "b.jpg", "a cat")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "image\tcaption\na.jpg\ta dog, big\nb.jpg\ta cat\n"),
        ("t.csv", "image;caption\na.jpg;a dog, big\nb.jpg;a cat\n"),
        ("t.csv", "\ufeffimage,caption\r\na.jpg,\"a dog, big\"\r\nb.jpg,a cat\r\n"),
        ("t.jsonl", lines_of([{"image": image, "caption": text} for image, text in PAIRS])),
        ("t.json", json.dumps([{"image": image, "caption": text} for image, text in PAIRS])),
        ("t.jsonl", lines_of([{"image": image, "captions": [text]} for image, text in PAIRS])),
        ("t.csv", "image| comment_number| comment\na.jpg| 0| a dog, big\nb.jpg| 0| a cat\n"),
        ("t.token", "a.jpg#0\ta dog, big\nb.jpg#0\ta cat\n"),
    ],
)  # fmt: skip
def test_one_table_in_many_forms_is_one_data_set(tmp_path, name, content):
    """Commas, tabs, semicolons, bars, JSON: the same pairs."""
    images, captions, _ = read(written(tmp_path, content, name))

    assert images == ["a.jpg", "b.jpg"]
    assert captions == [("a.jpg#0", "a.jpg", "a dog, big"), ("b.jpg#0", "b.jpg", "a cat")]


@pytest.mark.parametrize(("name", "form"), [("t.jsonl", "{}\n"), ("t.json", "[{}]")])
def test_a_row_that_gives_a_caption_twice_is_refused(tmp_path, name, form):
    """As a column that comes twice; one of them would be dropped unseen."""
    row = '{"image": "a.jpg", "caption": "x", "caption": "y"}'
    with pytest.raises(DatasetError, match="an object gives 'caption' twice"):
        read(written(tmp_path, form.replace("{}", row), name))


def test_captions_of_a_token_file_keep_their_numbers(tmp_path):
    """Also where lines were taken out or sorted otherwise: vectors and answers go by them."""
    _, captions, _ = read(written(tmp_path, "a.jpg#3\tfour\na.jpg#0\tone\n", "t.token"))

    assert captions == [("a.jpg#0", "a.jpg", "one"), ("a.jpg#3", "a.jpg", "four")]


def test_columns_without_a_name_are_passed_over(tmp_path):
    """Spreadsheets add them at the end; and a comma in a header of tabs separates nothing."""
    for content in ("image,caption,,\na.jpg,a dog,,\n", "image\tcaption\tnote, own\na.jpg\ta dog\t\n"):
        assert read(written(tmp_path, content))[1] == [("a.jpg#0", "a.jpg", "a dog")]


def test_numbered_captions_are_those_of_one_image(tmp_path):
    """In the order of their numbers, and an image may have fewer."""
    path = written(tmp_path, "file_name,caption_10,caption_2,caption_1\nx.jpg,ten,two,one\ny.jpg,,,y\n")
    _, captions, told = read(path)

    assert [text for _, _, text in captions] == ["one", "two", "ten", "y"]
    assert told[0].endswith("caption = columns `caption_1` … `caption_10`")
    longer = written(tmp_path, f"image,caption_1,caption_{'1' * 5000}\na,x,y\n")
    assert [text for _, _, text in read(longer)[1]] == ["x"]  # what is too long to be a number is none


def test_nested_sentences_are_captions_with_their_ids(tmp_path):
    """A dict of lists and a list of dicts, in JSON and in Parquet, hold the same."""
    dicts = {"filename": "a.jpg", "sentences": {"raw": ["one", "two"], "sentid": [7, 8]}}
    listed = {"filename": "a.jpg", "sentences": [{"raw": "one", "sentid": 7}, {"raw": "two", "sentid": 8}]}
    for row in (dicts, listed):
        path = written(tmp_path, lines_of([row]), "t.jsonl")
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
        for one in (path, tmp_path / "t.parquet"):
            _, captions, told = read(one)
            assert captions == [("7", "a.jpg", "one"), ("8", "a.jpg", "two")]
            assert (
                "caption = column `sentences.raw` (lists), caption id = column `sentences.sentid`" in told[0]
            )


def test_an_image_without_sentences_hides_none_of_the_others(tmp_path):
    """It is named, or left out where that is wished."""
    rows = [{"filename": "a.jpg", "captions": [{"raw": "one"}]}, {"filename": "b.jpg", "captions": []}]
    path = written(tmp_path, lines_of(rows), "t.jsonl")

    assert read(path, skip_empty=True)[:2] == (["a.jpg", "b.jpg"], [("a.jpg#0", "a.jpg", "one")])
    with pytest.raises(DatasetError, match=r"row 2 .* has an empty caption among its 0"):
        read(path)


def test_a_column_called_id_is_told_by_the_rows(tmp_path):
    """One id a picture names pictures, one id a row names captions, anything between is asked."""
    own = read(written(tmp_path, "id,image,caption\n5,a.jpg,x\n5,a.jpg,y\n6,b.jpg,z\n"))
    rows = read(written(tmp_path, "id,image,caption\n1,a.jpg,x\n2,a.jpg,y\n3,b.jpg,z\n"))
    beside = read(written(tmp_path, "id,image_id,caption\n11,5,x\n12,5,y\n13,6,z\n"))

    assert own[0] == ["5", "6"]
    assert [id_ for id_, _, _ in own[1]] == ["5#0", "5#1", "6#0"]
    assert rows[0] == ["a.jpg", "b.jpg"]
    assert [id_ for id_, _, _ in rows[1]] == ["1", "2", "3"]
    assert [id_ for id_, _, _ in beside[1]] == ["11", "12", "13"]
    with pytest.raises(DatasetError, match="say whose ids they are with --columns image_id="):
        read(written(tmp_path, "id,image,caption\n1,a.jpg,x\n2,a.jpg,y\n2,a.jpg,z\n"))


def test_what_is_said_wins_over_names(tmp_path):
    """A role may be any column, and a caption several."""
    path = written(tmp_path, "where,caption,title\na.jpg,a dog,Dog\nb.jpg,a cat,Cat\n")
    images, captions, _ = read(path, "image=where", "caption=title")
    _, both, _ = read(path, "image=where", "caption=title", "caption=caption")

    assert images == ["a.jpg", "b.jpg"]
    assert [text for _, _, text in captions] == ["Dog", "Cat"]
    assert [text for _, _, text in both] == ["Dog", "a dog", "Cat", "a cat"]


def test_a_split_is_a_column_too(tmp_path):
    """All rows are read where none is named."""
    path = written(tmp_path, "image,caption,split\na.jpg,x,train\nb.jpg,y,test\n")

    assert read(path)[0] == ["a.jpg", "b.jpg"]
    assert read(path, split="test")[0] == ["b.jpg"]
    for other in ("val", ""):
        with pytest.raises(UsageError, match=f"no split '{other}'; it holds train, test"):
            read(path, split=other)
    with pytest.raises(UsageError, match="leave out --split"):
        read(written(tmp_path, "image,caption\na.jpg,x\n"), split="test")


def test_empty_captions_may_be_left_out_and_are_counted(tmp_path):
    """The picture stays, as something to be found."""
    rows = [{"image": "a", "captions": ["x", ""]}, {"image": "b", "captions": []}]
    path = written(tmp_path, lines_of(rows), "t.jsonl")
    images, captions, told = read(path, skip_empty=True)

    assert (images, captions) == (["a", "b"], [("a#0", "a", "x")])
    assert told[-1] == "left out 1 empty caption"
    with pytest.raises(DatasetError, match=r"row 1 .* has an empty caption among its 2; .* --skip-empty"):
        read(path)


def test_a_row_that_lacks_a_bar_is_read_and_told(tmp_path):
    """Row 19,999 of Flickr30k's results.csv is such a row."""
    path = written(
        tmp_path, "image_name| comment_number| comment\na.jpg| 0| x\na.jpg| 4   A dog .\n", "results.csv"
    )
    _, captions, told = read(path)

    assert [text for _, _, text in captions] == ["x", "A dog ."]
    assert "line 3" in told[1] and "lacks a bar; read as 4 | A dog ." in told[1]


def test_a_file_name_that_no_disk_would_take_is_of_no_file(tmp_path):
    """Such names come from other systems, and are files that are missing."""
    (tmp_path / "a.jpg").write_bytes(b"x")
    path = written(tmp_path, f"image,caption\na.jpg,x\n{'b' * 300}.jpg,y\n")

    assert [image.file for image in read_table(path).images] == [str(tmp_path / "a.jpg"), None]


def test_pictures_are_found_by_the_id_in_the_folder_that_is_named(tmp_path):
    """A table of ids alone, and files called after them."""
    (tmp_path / "p").mkdir()
    for name in ("7.jpg", "8.png"):
        (tmp_path / "p" / name).write_bytes(b"x")
    path = written(tmp_path, "image_id,caption\n7,a\n8,b\n")

    assert [i.file for i in read_table(path, images=tmp_path / "p").images] == [
        str((tmp_path / "p" / name).resolve()) for name in ("7.jpg", "8.png")
    ]
    for beside in ("7.txt", "8.json", "9.txt"):  # as downloaders write them
        (tmp_path / "p" / beside).write_bytes(b"x")
    full = written(tmp_path, "image_id,caption\n7.jpg,a\n8.png,b\n", "full.csv")
    for table in (path, full):
        found = [i.file for i in read_table(table, images=tmp_path / "p").images]
        assert found == [str((tmp_path / "p" / name).resolve()) for name in ("7.jpg", "8.png")]
    none = written(tmp_path, "image_id,caption\n8,a\n9,b\n", "none.csv")
    assert [bool(i.file) for i in read_table(none, images=tmp_path / "p").images] == [True, False]
    (tmp_path / "p" / "7.png").write_bytes(b"x")
    with pytest.raises(DatasetError, match=r"image '7' could be 7\.jpg or 7\.png"):
        read_table(path, images=tmp_path / "p")


def test_files_named_from_the_root_are_read_once_their_folder_is_said(tmp_path):
    """A table of somebody else's must not choose what of this machine is shown to workers."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "table").mkdir()
    for name in ("a.jpg", "away/b.jpg"):
        (tmp_path / "far" / name).write_bytes(b"x")
    path = written(
        tmp_path / "table", f"image,caption\n{tmp_path}/far/a.jpg,x\n{tmp_path}/far/away/b.jpg,y\n"
    )
    _, _, told = read(path)

    assert [image.file for image in read_table(path).images] == [None, None]
    assert told[-1] == f"its files lie elsewhere; to have them read, add --images {tmp_path}/far"
    assert all(image.file for image in read_table(path, images=tmp_path / "far").images)


def test_addresses_in_the_column_of_images_are_addresses(tmp_path):
    """They are told from names of files cell by cell."""
    data = read_table(written(tmp_path, "image,caption\nhttps://h/a.jpg,x\nb.jpg,y\n"))

    assert [image.url for image in data.images] == [None, "https://h/a.jpg"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("image,caption,title\na,x,y\n", "2 columns that could be the caption: 'caption', 'title'; say .*--columns"),
        ("image,caption_1,text\na,x,y\n", "could be the caption: 'text', 'caption_1'"),
        ("filename,filepath,caption\na,b,y\n", "could be the image: 'filename', 'filepath'"),
        ("image,caption,caption\na,x,y\n", "has two columns called 'caption'"),
        ("image_id,caption\n1.0,x\n", "row 1 .* has image_id 1.0, a number with a fraction"),
        ("image_id,caption\n1.00,x\n", "row 1 .* has image_id 1.00, a number with a fraction"),
        ("image_id,caption\n1.2E+11,x\n", "row 1 .* a number with a fraction or power"),
        ("image,caption\na,\"['x', 'y']\"\n", "a list written as text in 'caption'"),
        ("image,caption\na,nan\n", "has no caption: 'nan' stands for a missing one; write it, or empty it"),
        ("image_id,caption\n1,x\nnan,y\n", "row 2 .* has no image_id: 'nan' stands for a missing one; .* take the row"),
        ("image_id,image,caption\n1,a\x01.jpg,x\n", r"row 1 .* the control character U\+0001 in its image"),
        ("image,caption\n" + "iVBORw0KGgo" * 900 + ",x\n", "row 1 .* has 9,900 bytes in its image .* picture written"),
        ("image,caption\na,x\nb,\n", "row 2 .* has no caption; mend it, or leave .* --skip-empty"),
        ("image,caption\na,x\nb,\u200b \ufeff\n", "row 2 .* has no caption; mend it"),
        ("image,caption\na,x\x07y\n", r"row 1 .* the control character U\+0007 in its caption"),
        ("image,caption\na\x1b[1m,x\n", r"the control character U\+001B in its image"),
        ("image,caption\na," + "x" * 10_001 + "\n", "a caption of 10,001 characters, of which 10,000 are allowed"),
        ("image,caption\na,\"" + "x\n" * 70_000 + "\n", "is a quote at or before that line never closed"),
        ("caption_id,image,caption\n1,a,x\n1,b,y\n", "caption id '1' comes twice"),
        ("id,image,caption\n1,a,x\n1,b,y\n", "gives image '1' another file or url than before"),
        ("image,caption\nkettle.WAV,x\n", "row 1 .* names 'kettle.WAV', but its column is read for images"),
        ("image,caption\na,x\nb,\"y\nc,\"z\"\n", "line 4: .* is a quote at or before that line never closed"),
        ("image\tcaption\na\t\"begun\nb\tends here\"\n", "line 3 .* ends a cell that holds tabs and ends of lines"),
        ("\n", "no first line that names its columns"),
        ("image|caption\na|" + "x" * 200_000 + "\n", "a caption of 200,000 characters, of which 10,000"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line(tmp_path, content, named):
    """It names the row or the columns, and what to do."""
    with pytest.raises(DatasetError, match=named) as caught:
        read(written(tmp_path, content))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (lines_of([{"caption": ["x"]}, {"caption": "y"}]), r"mixes lists \(row 1\) and single values \(row 2\)"),
        (lines_of([{"image": "a", "caption": [["x"]]}]), "column 'caption' of .* holds lists of lists"),
        (lines_of([{"image": "a", "caption": float("nan")}]), "row 1 .* has no caption"),
        (lines_of([{"image_id": 1.0, "caption": "x"}]), "a number with a fraction"),
        (lines_of([{"image": "a", "caption": "x\x00"}]), r"control character U\+0000"),
        ('{"image": "a", "caption": "\\ud800"}\n', r"control character U\+D800"),
        ('{"image": "a"\n', "line 1 of .* is not valid JSON"),
        ("\n{}\n", "holds no rows"),
        ("[1]\n", "row 1 of .* is no JSON object"),
        ("[" * 100_000 + "\n", r"line 1 of .* is not valid JSON \(maximum recursion"),
    ],
)  # fmt: skip
def test_json_that_cannot_be_meant_is_one_line(tmp_path, content, named):
    """As above."""
    with pytest.raises(DatasetError, match=named) as caught:
        read(written(tmp_path, content, "t.jsonl"))
    assert "\n" not in str(caught.value)


def test_other_layouts_of_json_name_their_reader(tmp_path):
    """COCO's captions and Karpathy's splits are no tables."""
    coco = written(tmp_path, json.dumps({"images": [], "annotations": []}), "captions.json")
    split = written(tmp_path, json.dumps({"images": []}), "dataset.json")

    with pytest.raises(DatasetError, match=re.escape(f"read it with --dataset coco --captions {coco}")):
        read(coco)
    with pytest.raises(DatasetError, match=re.escape(f"--split-file {split}")):
        read(split)


@pytest.mark.parametrize("said", ["caption", "caption=", "words=x", "=x"])
def test_columns_that_cannot_be_said_are_refused(tmp_path, said):
    """The form and the roles are named; so are the columns that there are."""
    path = written(tmp_path, "image,caption\na,x\n")

    with pytest.raises(UsageError, match="--columns takes ROLE=COLUMN"):
        read(path, said)
    with pytest.raises(UsageError, match="gives image twice"):
        read(path, "image=image", "image=caption")
    with pytest.raises(DatasetError, match=r"no column 'words', .* its columns: 'image', 'caption'"):
        read(path, "caption=words")


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)

CELL = st.one_of(TEXT, st.none(), st.floats(), st.lists(TEXT, max_size=2))


@settings(max_examples=60, deadline=None)
@given(
    header=st.lists(
        st.sampled_from(["image", "caption", "id", "text", "url", "a b", "x"]), min_size=1, max_size=4
    ),
    rows=st.lists(st.tuples(CELL, CELL, CELL, CELL), max_size=4),
)
def test_any_table_is_read_or_refused_in_one_line(tmp_path_factory, header, rows):
    """No cell of any kind leads to another error, and what is read has texts everywhere."""
    content = lines_of([dict(zip(header, row, strict=False)) for row in rows])
    path = written(tmp_path_factory.mktemp("t"), content, "t.jsonl")
    try:
        _, captions, _ = read(path)
    except MitlError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert all(text.strip() for _, _, text in captions)
