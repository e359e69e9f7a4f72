"""Reading results of past work from files: no cell is lost, and what cannot be told is refused in one line."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.crowd.batch_csv import LAYOUTS, expanded_cells, find_layout, own_answers, read_time, submission
from mitl.crowd.column_map import column_map, read_column_map
from mitl.crowd.mapped_rows import read_mapped
from mitl.crowd.result_file import KeptRows, kept_rows, read_result_file, row_document
from mitl.errors import DatasetError, SettingsError
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Concept, Label, Outcome, Shortcoming

SAMPLES = {
    "crowdtruth_Batch_2963456_batch_results.csv.gz": ("batch_csv", 210, ","),
    "chateval_1_turn_tuesafnoon.csv.gz": ("assignment_list", 60, ","),
    "vizwiz_clt_hit.results": ("command_line", 10, "\t"),
}
cells = st.text(
    st.sampled_from("a,;\"'|\t\n\r<>&?]\0\x0b\ufffe🙂ä") | st.characters(exclude_categories=["Cs"]),
    max_size=9,
)
tables = st.integers(1, 5).flatmap(
    lambda width: st.tuples(
        st.lists(st.text("abcXYZ.;", min_size=1), min_size=width, max_size=width, unique=True),
        st.lists(st.lists(cells, min_size=width, max_size=width), max_size=6),
    )
)


def write(path: Path, rows: list[list[str]], delimiter: str = ",") -> Path:
    """The rows as a CSV file, every cell in quotes."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    return path


@given(tables, st.booleans())
def test_every_cell_of_every_table_survives_reading_and_keeping(tmp_path_factory, table, packed):
    """Whatever a cell holds, it is read as it stands and comes back from the document it is kept in."""
    header, rows = table
    path = write(tmp_path_factory.mktemp("t") / "t.csv", [header, *rows])
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))

    file = read_result_file(path)
    kept = KeptRows(file.sha256, file.columns, tuple(row.cells for row in file.rows))
    document = row_document([("p01_label", "yes<?mitl-rows x?>")], kept)

    assert file.columns == tuple(header)
    assert [list(row.cells) for row in file.rows] == rows
    assert kept_rows(document) == kept
    assert answer_fields(document) == [("p01_label", "yes<?mitl-rows x?>")]
    assert "\0" not in document


@given(st.text())
def test_a_document_from_the_api_keeps_no_rows(text):
    """Nothing that a worker writes is taken for a kept row."""
    assert kept_rows(row_document([("a", text)], KeptRows("x", (), ())).partition("<?mitl-rows ")[0]) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_no_cell_of_a_real_file_is_lost(shared_data, name):
    """Files that others downloaded from Amazon: every cell, as Python's own reader has it, is in the documents."""
    kind, n_rows, delimiter = SAMPLES[name]
    path = shared_data / "mturk_result_samples" / name
    data = path.read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    header, *wanted = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)

    file = read_result_file(path)
    layout = find_layout(file.columns)
    assert layout is not None
    found = []
    for row in file.rows:
        by_column = dict(zip(file.columns, row.cells, strict=True))
        kept = kept_rows(
            row_document(own_answers(layout, by_column), KeptRows("x", file.columns, (row.cells,)))
        )
        assert kept is not None
        found.append(kept.cells)

    assert layout.kind == kind
    assert len(found) == len(wanted) == n_rows
    assert all(
        cells[column] == cell
        for cells, row in zip(found, wanted, strict=True)
        for column, cell in zip(header, row, strict=False)
    )
    said = [submission(layout, cells) for cells in found]
    assert len({(one.assignment_id, one.worker_id) for one in said}) == n_rows
    assert all(one.hit_id and one.accepted_at < one.submitted_at and not one.odd_times for one in said)


def test_answers_of_a_real_file_are_those_that_its_authors_read(shared_data):
    """Beside each answer document their file has their own parse of it; NA stands for no answer."""
    file = read_result_file(shared_data / "mturk_result_samples" / "chateval_1_turn_tuesafnoon.csv.gz")
    layout = find_layout(file.columns)
    theirs = [column for column in file.columns if column.startswith("response")]

    compared = 0
    for row in file.rows:
        cells = dict(zip(file.columns, row.cells, strict=True))
        ours = expanded_cells(layout, cells)
        for column in theirs:
            if cells[column] != "NA":
                assert ours[f"Answer.{column}"].strip() == cells[column].strip()
                compared += 1
            else:
                assert ours.get(f"Answer.{column}", "") in ("", "NA")
    assert compared > 1000


def test_a_tsv_whose_quotes_are_not_doubled_keeps_them(tmp_path):
    """The command line tools' writer leaves quotes within a cell as they are."""
    path = tmp_path / "r.results"
    path.write_bytes(b'"hitid"\t"Answer.a"\r\n"H1"\t"he said "no" twice"\r\n"H2"\t""\r\n')

    file = read_result_file(path)

    assert [row.cells for row in file.rows] == [("H1", 'he said "no" twice'), ("H2", "")]


def test_files_of_other_encodings_are_read(tmp_path):
    """UTF-8 with a mark, UTF-16 as spreadsheets save it, and Windows-1252, which is said."""
    found = {}
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        path = tmp_path / f"{encoding}.csv"
        path.write_bytes('a;b\n"grün";2\n'.encode(encoding))
        file = read_result_file(path)
        found[file.encoding] = (file.columns, file.rows[0].cells)

    assert found == dict.fromkeys(("utf-8", "utf-16", "cp1252"), (("a", "b"), ("grün", "2")))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no header"),
        (b"\n\n", "no header"),
        (b"sep=;\na;b\n1;2\n", "tells Excel how cells are separated; delete that line"),
        (b"a,b\n1,2,3\n", "line 2 .* has 3 cells, but the header names 2 columns"),
        (b'a,b\n"x"y,2\n', "line 2 .* is not a CSV"),
        (b"a,a\n1,2\n", "has the column 'a' twice"),
        (b"\x1f\x8bnonsense", "is a broken .gz file"),
        (gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-9], "is a broken .gz file"),
        (b"a,\x81\x8d\n", "is not text in UTF-8"),
    ],
)
def test_a_file_that_is_no_table_says_what_is_wrong(tmp_path, content, message):
    """One line that names the file and, where there is one, the line."""
    path = tmp_path / "x.csv"
    path.write_bytes(content)

    with pytest.raises(DatasetError, match=message):
        read_result_file(path)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("Sat Oct 07 03:51:58 PDT 2017", dt.datetime(2017, 10, 7, 10, 51, 58)),
        ("Fri Apr 19 17:32:50 CDT 2019", dt.datetime(2019, 4, 19, 22, 32, 50)),
        ("2019-06-14 17:31:17-04:00", dt.datetime(2019, 6, 14, 21, 31, 17)),
        ("2024-01-02T03:04:05Z", dt.datetime(2024, 1, 2, 3, 4, 5)),
        ("1555795251970", dt.datetime(2019, 4, 20, 21, 20, 51, 970000)),
        ("1555795251.5", dt.datetime(2019, 4, 20, 21, 20, 51, 500000)),
        ("2019-06-14 17:31:17", None),
        ("Sat Oct 07 03:51:58 XYZ 2017", None),
        ("Sat Oct 47 03:51:58 PDT 2017", None),
        ("yesterday", None),
    ],
)
def test_times_are_read_in_the_forms_that_files_have(text, utc):
    """Without a zone nobody knows when it was: None."""
    assert read_time(text) == (utc and utc.replace(tzinfo=dt.UTC))


@given(st.text(max_size=40))
def test_no_time_raises(text):
    """Whatever the cell holds."""
    assert read_time(text) is None or read_time(text).tzinfo is dt.UTC


def test_the_layouts_are_told_apart_by_their_columns():
    """The answer document makes boto3's rows; other tables are none of them."""
    for layout in LAYOUTS:
        assert find_layout([*layout.needed, "more"]) is layout
    assert find_layout(["image", "label"]) is None


def test_a_crowd_form_within_a_cell_is_taken_apart():
    """`taskAnswers` gives a column for each of its fields, a choice the names that are true."""
    layout = LAYOUTS[0]
    cells = {"Answer.taskAnswers": '[{"q1":{"no":false,"yes":true},"q2":"a & b"}]', "HITId": "H"}

    found = expanded_cells(layout, cells)

    assert (found["Answer.q1"], found["Answer.q2"], found["HITId"]) == ("yes", "a & b", "H")


MAPPING = {
    "image": {"column": "Input.url{place}", "pattern": r"_0*(\d+)\.jpg"},
    "caption": "Input.cap{place:02}",
    "label": "Answer.q{place}",
    "shortcoming": "Answer.why{place}",
    "concept": "Answer.what{place}",
    "text": "Answer.note{place}",
    "active_ms": "Answer.ms{place}",
    "labels": {"1": "yes", "2": "weak_yes", "broken": "image_failed", "*": "no"},
    "shortcomings": {"absent": "not_in_image"},
}


def test_a_mapping_reads_place_by_place():
    """Each place has its columns; values become our words; the rest of a shorter page is not an answer."""
    mapping = column_map(MAPPING, "map.toml")
    row = {
        "Input.url1": "http://x/COCO_000042.jpg",
        "Input.cap01": "7",
        "Answer.q1": "2",
        "Answer.why1": "absent|grammar",
        "Answer.what1": "color",
        "Answer.note1": " so ",
        "Answer.ms1": "1200.4",
        "Input.url2": "http://x/COCO_000043.jpg",
        "Input.cap02": "8",
        "Answer.q2": "broken",
        "Input.url3": "http://x/COCO_000044.jpg",
        "Input.cap03": "9",
        "Answer.q3": "",
        "Input.url4": "",
        "Input.cap04": "",
        "Answer.q4": "",
    }

    places = mapping.places(row)
    found = read_mapped(mapping, row, places)

    assert places == (1, 2, 3, 4)
    assert [(one.image, one.caption) for one in found.answers] == [("42", "7"), ("43", "8"), ("44", "9")]
    first, second, third = (one.answer for one in found.answers)
    assert (first.label, first.outcome, first.text, first.active_ms) == (
        Label.WEAK_YES,
        Outcome.ANSWERED,
        "so",
        1200,
    )
    assert first.shortcomings == (Shortcoming.NOT_IN_IMAGE, Shortcoming.GRAMMAR)
    assert first.concepts == (Concept.COLOR,)
    assert (second.label, second.outcome) == (None, Outcome.IMAGE_FAILED)
    assert third is None
    assert [finding.code for finding in found.findings] == ["missing_answer"]


def test_long_pages_are_read_to_their_end():
    """However many pairs a page had."""
    row = {f"{name}{place}": "1" for name in ("image", "text", "label") for place in range(1, 251)}
    mapping = column_map(
        {
            key: f"{name}{{place}}"
            for key, name in (("image", "image"), ("caption", "text"), ("label", "label"))
        },
        "m",
    )
    assert mapping.places(row) == tuple(range(1, 251))


def test_cells_that_hold_several_places_are_split():
    """The parts of cells go together by their order; cells of different length say so and give nothing."""
    mapping = column_map(
        {
            "image": {"column": "i", "split": r"\|"},
            "caption": {"value": "7"},
            "label": {"column": "l", "split": r"\|<END>\|?"},
        },
        "m",
    )

    good = read_mapped(mapping, {"i": "1|2", "l": "yes|<END>|no|<END>"}, (0,))
    bad = read_mapped(mapping, {"i": "1|2|3", "l": "yes|<END>|no|<END>"}, (0,))

    assert [(one.image, one.caption, one.answer.label) for one in good.answers] == [
        ("1", "7", Label.YES),
        ("2", "7", Label.NO),
    ]
    assert bad.answers == ()
    assert "image 3, label 2" in bad.findings[0].detail


@given(
    st.dictionaries(
        st.sampled_from(
            ["Input.url1", "Input.cap01", *(f"Answer.{n}1" for n in ("q", "why", "what", "note", "ms"))]
        ),
        cells,
    )
)
def test_no_cell_makes_a_mapping_fail(row):
    """What is odd becomes a finding."""
    found = read_mapped(column_map(MAPPING, "m"), row, (1,))

    assert len(found.answers) <= 1
    assert Counter(finding.code for finding in found.findings).keys() <= {"bad_value", "missing_answer"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image = ", "is not TOML"),
        ("picture = 'x'", "sets 'picture'; known: image, caption"),
        ("image = 3", "sets image to 3, but a column's name or a table is wanted"),
        ("image = {col = 'x'}", "image in 'm.toml' names 'col'; known: column or value, split, pattern"),
        ("image = {split = ','}", "needs either column or value"),
        ("image = {column = 'x', pattern = '('}", "image.pattern in 'm.toml' is not a regular expression"),
        ("labels = 'yes'", r"but it is a table; write \[labels\]"),
        (
            "[labels]\nx = 'perhaps'",
            r"maps 'x' to 'perhaps'; known: yes, weak_yes, weak_no, no, skipped, image_failed",
        ),
        ("keep = 'x'", "sets keep to 'x', but a list of columns is wanted"),
        ("direction = 'up'", "sets direction to 'up'; known: i2t, t2i"),
        ("direction = ['t2i']", r"sets direction to \['t2i'\]; known: i2t, t2i"),
        ("worker = 3", "sets worker to 3, but a column's name is wanted"),
    ],
)
def test_a_mapping_that_cannot_be_meant_says_so(tmp_path, text, message):
    """One line that names the file and the key."""
    path = tmp_path / "m.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match=message):
        read_column_map(path)
