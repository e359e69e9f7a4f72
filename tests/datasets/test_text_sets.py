"""BEIR's folders and MS MARCO's tables: what is read, what is left out, and one line for what will not do."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_kit import write_beir

from mitl.datasets.assembling import content_hash
from mitl.datasets.table import TableReading, Told
from mitl.datasets.text_sets import read_text_set, text_set_kind
from mitl.errors import DatasetError, MitlError, UsageError
from mitl.positives.release import described_of_form, makers_words
from mitl.positives.release_input import ReleaseCard
from mitl.records import IdKind
from mitl.records.forms import TEXTS, of_form


def read(folder, **how):
    """(the data set, what was told)."""
    told = Told()
    return read_text_set(folder, text_set_kind(folder), TableReading(**how), told), told.lines


def originals(data):
    own = {(caption.image_external_id, caption.external_id) for caption in data.captions}
    return own | set(data.positives)


@pytest.fixture
def beir(tmp_path):
    return write_beir(tmp_path / "small")


@pytest.fixture
def marco(tmp_path):
    """Integer ids, a quote that is no quote, a passage that two queries share, and a query of another split."""
    (tmp_path / "collection.tsv").write_text('10\ta "quoted text\n9\tnine\n11\televen\n', encoding="utf-8")
    (tmp_path / "queries.dev.small.tsv").write_text("2\twhat is two\n1\twhat is one\n3\tunjudged\n")
    (tmp_path / "qrels.dev.small.tsv").write_text("1 0 9 1\n1\t0\t10\t1\n2 0 9 1\n2 0 11 0\n")
    return tmp_path


def test_a_beir_folder_is_read_with_all_its_positives(beir):
    data, told = read(beir)

    assert (data.kind, data.sides, data.id_kind) == ("beir", ("document", "query"), IdKind.STRING)
    assert (len(data.images), len(data.captions)) == (48, 11)
    assert originals(data) == {(f"d{4 * q + n}", f"q{q}") for q in range(11) for n in range(2)}
    texts = {document.external_id: document.texts for document in data.images}
    assert len(texts["d0"]) == 1 and texts["d1"][0] == "Tides"
    assert told == [
        "read as: beir (test), document = corpus.jsonl, query = queries.jsonl, positive = a score above 0 in test.tsv",
        "left out 1 query without a judgement in the split 'test'",
    ]


def test_ms_marcos_tables_are_read_without_quoting(marco):
    data, told = read(marco)

    assert (data.kind, data.id_kind) == ("msmarco", IdKind.INTEGER)
    assert [document.external_id for document in data.images] == ["9", "10", "11"]
    assert data.images[1].texts == ('a "quoted text',)
    assert [caption.external_id for caption in data.captions] == ["1", "2"]
    assert originals(data) == {("9", "1"), ("10", "1"), ("9", "2")}
    assert told[1] == "left out 1 query without a judgement in the split 'dev.small'"


def test_names_of_columns_above_ms_marcos_tables_are_no_items(marco):
    plain, _ = read(marco)
    for name, names in (("collection.tsv", "pid\tpassage"), ("queries.dev.small.tsv", "QID\tquery")):
        file = marco / name
        file.write_text(f"{names}\n{file.read_text(encoding='utf-8')}", encoding="utf-8")

    assert content_hash(read(marco)[0]) == content_hash(plain)


def test_passages_without_a_text_are_refused_or_left_out(marco):
    with (marco / "collection.tsv").open("a", encoding="utf-8") as file:
        file.write("12\t \n")

    with pytest.raises(
        DatasetError, match=r"^line 4 of .* has no text; mend it, or leave such out with --skip-empty$"
    ):
        read(marco)
    data, told = read(marco, skip_empty=True)

    assert len(data.images) == 3 and "left out 1 document without a text" in told


def test_documents_that_no_page_could_hold_are_told_of_at_once(marco):
    (marco / "collection.tsv").write_text(
        "".join(f"{n}\t{'é' * 1_100}\n" for n in (9, 10, 11)), encoding="utf-8"
    )

    assert read(marco)[1][-1].startswith(
        "its documents have 2,200 bytes on average, and a page has room for about 1,300"
    )


def test_the_split_is_named_where_there_are_several(beir):
    (beir / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq11\td44\t2\n")

    with pytest.raises(UsageError, match="holds the splits dev, test; name one with --split"):
        read(beir)
    data, _ = read(beir, split="dev")

    assert originals(data) == {("d44", "q11")}


def test_a_first_line_that_is_a_judgement_is_read(beir):
    """BEIR's own loader would skip it."""
    path = beir / "qrels" / "test.tsv"
    path.write_text(path.read_text().partition("\n")[2])

    assert len(originals(read(beir)[0])) == 22


@pytest.mark.parametrize("score", ["-1", "0.5", "1.0"])
def test_a_first_line_with_a_number_is_no_header(beir, score):
    path = beir / "qrels" / "test.tsv"
    path.write_text(f"q0\td0\t{score}\n" + path.read_text().partition("\n")[2])

    with pytest.raises(DatasetError, match=r"judges document 'd0' .* again|line 1 of .* is not query-id"):
        read(beir)


def changed(beir, name, old, new):
    path = beir / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("qrels/test.tsv", "q0\td0", "q0\tD0", r"judges document 'D0', which is not among the 48 .* as 'd0'; take"),
        ("qrels/test.tsv", "q0\td0", "Q0\td0", r"judges query 'Q0', which is not among the 12 .* as 'q0'; take"),
        ("qrels/test.tsv", "q0\td0\t1", "q0\td0\tone", "line 2 of .* is not query-id, corpus-id and score"),
        ("qrels/test.tsv", "q0\td0\t1", "q0\td1\t0", "line 3 of .* judges document 'd1' for query 'q0' again"),
        ("qrels/test.tsv", "q0\td0\t1\nq0\td1\t1", "q0\td0\t0\nq0\td1\t0", "query 'q0' has no positive"),
        ("corpus.jsonl", '"d1"', '"d0"', "id 'd0' comes twice in .*corpus.jsonl"),
        ("queries.jsonl", '"q1"', '"q0"', "id 'q0' comes twice in .*queries.jsonl"),
        ("queries.jsonl", "What are tides?", " ", "line 1 of .*queries.jsonl' has no text"),
        ("queries.jsonl", '"_id"', '"id"', "line 1 of .*queries.jsonl' is no object with an id"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line(beir, name, old, new, told):
    changed(beir, name, old, new)

    with pytest.raises(DatasetError, match=told) as refused:
        read(beir)
    assert "\n" not in str(refused.value)


def test_a_document_without_words_is_refused_or_left_out(beir):
    with (beir / "corpus.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "none", "title": " ", "text": None}) + "\n")

    with pytest.raises(DatasetError, match=r"line 49 of .* has neither title nor text; .* --skip-empty"):
        read(beir)
    data, told = read(beir, skip_empty=True)

    assert len(data.images) == 48
    assert "left out 1 document without a text" in told


def test_another_positive_or_title_is_another_data_set(beir):
    """So that `mitl init` again with changed files is refused."""
    before = content_hash(read(beir)[0])
    changed(beir, "qrels/test.tsv", "q0\td2\t0", "q0\td2\t1")
    more = content_hash(read(beir)[0])
    changed(beir, "corpus.jsonl", '"title": "Tides"', '"title": "Tide"')

    assert len({before, more, content_hash(read(beir)[0])}) == 3


@given(line=st.text(max_size=30))
def test_no_line_of_qrels_ends_in_a_traceback(tmp_path_factory, line):
    folder = write_beir(tmp_path_factory.mktemp("any") / "set")
    with (folder / "qrels" / "test.tsv").open("a", encoding="utf-8", errors="replace", newline="") as file:
        file.write(line + "\n")
    try:
        read(folder)
    except MitlError as refused:
        assert "\n" not in str(refused)


def test_prose_speaks_of_texts_and_columns_keep_their_names():
    assert of_form("An image with captions; `image_id`, image_to_caption.json", TEXTS) == (
        "A document with queries; `image_id`, document_to_query.json"
    )


def test_what_makers_wrote_stays_theirs():
    """Their citation and address, also within a sentence; what is said of the same word elsewhere changes."""
    card = ReleaseCard(
        citation="Images and captions of *us*", url="https://lab.example/an image", version="images"
    )
    makers = makers_words(card, "captions")

    told = of_form(
        "cite as Images and captions of \\*us\\* | images at https://lab.example/an image", TEXTS, makers
    )

    assert told == "cite as Images and captions of \\*us\\* | documents at https://lab.example/an image"
    assert described_of_form({"description": card.citation, "url": card.url}, TEXTS, makers) == {
        "description": card.citation,
        "url": card.url,
    }


@pytest.mark.parametrize("missing", ["corpus.jsonl", "queries.jsonl", "qrels"])
def test_half_a_folder_is_not_taken_for_a_table(beir, missing):
    """What lies there and what does not."""
    (beir / missing).rename(beir.parent / "elsewhere")

    with pytest.raises(DatasetError, match=f"has .* and .* but not {missing}; put there"):
        text_set_kind(beir)


@pytest.mark.parametrize(
    ("file", "line", "told"),
    [
        ("corpus", {"_id": "z", "text": ["a", "b"]}, "has several values as its text"),
        ("corpus", {"_id": "z", "text": {"a": "b"}}, "has several values as its text"),
        ("corpus", {"_id": "z", "text": '["a", "b"]'}, "join its parts into one text"),
        ("corpus", {"_id": 1.0, "text": "a"}, "ids are whole numbers or texts"),
        ("queries", {"_id": "z", "text": " "}, "write what it asks, or take it and its judgements out"),
    ],
)
def test_texts_that_are_none_are_refused(tmp_path, file, line, told):
    write_beir(tmp_path / "small", 3)
    with (tmp_path / "small" / f"{file}.jsonl").open("a") as written:
        written.write(json.dumps(line) + "\n")
    with pytest.raises(DatasetError, match=re.escape(told)):
        read_text_set(tmp_path / "small", "beir", TableReading(), Told())
