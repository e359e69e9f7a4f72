"""The official `mturk_parsed.csv`: what our writer made of judgements and proposals is read back as it was."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

import pytest
from cli_kit import fails, ok
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from world_kit import SANDBOX, make_released, make_world, run_build, run_propose

from mitl.crowd.parsed_csv import official_answer, official_judgements, official_proposals, official_rows
from mitl.crowd.result_file import ResultFile, ResultRow, read_result_file
from mitl.datasets.official import OFFICIAL_COLUMNS
from mitl.db.session import open_database
from mitl.db.store import answers, judgements, parses, proposals
from mitl.errors import DatasetError
from mitl.records import (
    AnnotatorKind,
    Concept,
    Direction,
    Environment,
    JudgementSource,
    Label,
    Shortcoming,
)
from mitl.settings import load as load_settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.past_work.importing import import_results

HEADER = ",".join(OFFICIAL_COLUMNS) + "\n"
places = st.tuples(st.integers(1, 3), st.sampled_from([0.25, 0.5, 1.0]))
found_by = st.dictionaries(
    st.tuples(st.sampled_from(["clip", "pvse"]), st.sampled_from(list(Direction))), places, min_size=1
)
answers_given = st.lists(
    st.tuples(
        st.sampled_from(list(Label)),
        st.lists(st.sampled_from(list(Shortcoming)), max_size=2, unique=True),
        st.lists(st.sampled_from(list(Concept)), max_size=2, unique=True),
    ),
    min_size=1,
    max_size=3,
)
asked = st.dictionaries(
    st.tuples(st.integers(1, 6), st.integers(1, 30)),
    st.tuples(found_by, answers_given),
    min_size=1,
    max_size=6,
)


def rows_of(data: bytes) -> list[tuple[str, ...]]:
    """The rows of a CSV, its header among them."""
    return [tuple(row) for row in csv.reader(io.StringIO(data.decode()))]


def as_file(data: bytes) -> ResultFile:
    """The file as the reader gives it."""
    header, *rows = rows_of(data)
    return ResultFile(
        "m.csv", "0" * 64, header, tuple(ResultRow(n, row) for n, row in enumerate(rows, 2)), "utf-8"
    )


def written(given_answers) -> bytes:
    """A row for each judgement, annotator and direction, as a release writes them."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(OFFICIAL_COLUMNS)
    for (image, caption), (by, said) in sorted(given_answers.items()):
        for label, shortcomings, concepts in said:
            codes = ["|".join(str(one.code) for one in members) for members in (shortcomings, concepts)]
            for (model, _), (rank, score) in sorted(by.items()):
                writer.writerow([model, rank, score, caption, image, label.code, *codes])
    return sink.getvalue().encode()


@given(asked)
@examples(max_examples=40)
def test_judgements_and_proposals_account_for_every_row(given_answers):
    """Each judgement times each proposal of its pair gives the rows of the file, no more and no fewer."""
    data = written(given_answers)
    rows = official_rows(as_file(data))

    found = official_judgements(rows)
    proposed = official_proposals(rows, found)

    regained = Counter(
        (one.model, one.rank, one.score, judgement.caption, judgement.image, *judgement.rows[0].cells[5:])
        for judgement in found
        for one in proposed
        if (one.image, one.caption) == (judgement.image, judgement.caption)
    )
    assert regained == Counter(
        (model, int(rank), float(score), *rest) for model, rank, score, *rest in rows_of(data)[1:]
    )
    assert sum(len(judgement.rows) for judgement in found) == len(rows)


@given(asked)
@examples(max_examples=40)
def test_one_answer_a_pair_is_read_as_one(given_answers):
    """An annotator that found a pair in both directions at one rank doubles no judgement where one worker was asked."""
    single = {pair: (by, said[:1]) for pair, (by, said) in given_answers.items()}
    single |= {(1, 1): ({("clip", Direction.I2T): (1, 0.5)}, [(Label.YES, [], [])])}

    found = official_judgements(official_rows(as_file(written(single))))

    assert len(found) == len(single)
    for judgement in found:
        label, shortcomings, concepts = single[int(judgement.image), int(judgement.caption)][1][0]
        answer, findings = official_answer(dict(zip(OFFICIAL_COLUMNS, judgement.rows[0].cells, strict=True)))
        assert answer is not None
        assert (answer.label, set(answer.shortcomings), set(answer.concepts)) == (
            label,
            set(shortcomings),
            set(concepts),
        )
        assert not findings


def parsed(*rows: str) -> list[tuple[str, str, int]]:
    """Image, caption and number of each judgement in a file of these rows."""
    file = as_file((HEADER + "\n".join(rows)).encode())
    return [(one.image, one.caption, one.nth) for one in official_judgements(official_rows(file))]


def test_doubled_rows_are_two_workers_where_two_are_usual():
    """The pairs that leave no doubt decide: with two answers each, so has the pair whose rows come twice."""
    two = ["clip,1,0.5,7,1,1,,", "clip,1,0.5,7,1,2,,", "clip,2,0.5,8,1,1,,", "clip,2,0.5,8,1,4,,"]
    one = ["clip,1,0.5,7,1,1,,", "clip,2,0.5,8,1,1,,"]
    doubled = ["clip,3,0.5,9,1,1,,"] * 2

    assert [key for key in parsed(*two, *doubled) if key[1] == "9"] == [("1", "9", 1), ("1", "9", 2)]
    assert [key for key in parsed(*one, *doubled) if key[1] == "9"] == [("1", "9", 1)]
    assert parsed(*doubled) == [("1", "9", 1)]


def test_the_side_with_more_ranks_searched():
    """A query has a row for each rank; an annotator with two ranks for a pair found it from both sides."""
    rows = official_rows(
        as_file(
            (
                HEADER
                + "clip,1,.9,7,1,1,,\nclip,2,.8,8,1,1,,\nclip,1,.7,9,2,1,,\nclip,2,.6,9,3,1,,\nclip,4,.9,7,1,1,,"
            ).encode()
        )
    )
    judged = official_judgements(rows)

    found = {(one.image, one.caption, one.rank): one.direction for one in official_proposals(rows, judged)}
    assert found == {
        ("1", "7", 1): Direction.I2T,
        ("1", "7", 4): Direction.T2I,
        ("1", "8", 2): Direction.I2T,
        ("2", "9", 1): Direction.T2I,
        ("3", "9", 2): Direction.T2I,
    }
    told = official_proposals(rows, judged, Direction.I2T)
    assert Counter(one.direction for one in told) == {Direction.I2T: 4, Direction.T2I: 1}


def test_odd_answers_become_findings_and_numbers_of_data_frames_are_read():
    """`3.0`, `[1, 3]` and `nan` mean what they say; 5, words and nothing are not an answer."""

    def read(annotation, shortcoming="", shortcoming2=""):
        return official_answer(
            {"annotation": annotation, "shortcoming": shortcoming, "shortcoming2": shortcoming2}
        )

    answer, findings = read("3.0", "[1, 3]", "2.0")
    assert (answer.label, answer.concepts, findings) == (Label.WEAK_NO, (Concept.COLOR,), [])
    assert answer.shortcomings == (Shortcoming.NOT_IN_IMAGE, Shortcoming.DESCRIBED_WRONGLY)
    assert read("1", "nan")[1] == []
    assert [finding.code for finding in read("1", "9")[1]] == ["bad_value"]
    for odd in ("5", "0", "maybe", "", "1|2"):
        assert read(odd)[0] is None
        assert "missing_answer" in {finding.code for finding in read(odd)[1]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "clip,first,.5,7,1,1,,",
            "line 2: ranking is 'first', but a whole number from 0 to 2,147,483,646 is",
        ),
        ("clip,2147483647,.5,7,1,1,,", "line 2: ranking is '2147483647'"),
        ("clip,1.5,.5,7,1,1,,", "line 2: ranking is '1.5'"),
        ("clip,1,nan,7,1,1,,", "line 2: score is 'nan', but a number is wanted"),
        (",1,.5,7,1,1,,", "line 2 has no model"),
        ("clip,1,.5,,1,1,,", "line 2 has no cid"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(row, message):
    """The line and the cell."""
    with pytest.raises(DatasetError, match=message):
        parsed(row)


def test_ranks_that_count_from_0_are_raised():
    """Ours count from 1."""
    rows = official_rows(as_file((HEADER + "clip,0,.5,7,1,1,,\nclip,1,.5,8,1,1,,\n").encode()))

    assert [row.place[1] for row in rows] == [1, 2]


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    """A release's CSV of a small world that people judged."""
    folder = tmp_path_factory.mktemp("a") / "p"
    make_released(folder, n_images=20, image_queries=6, caption_queries=8)
    return folder / "release" / "mturk_parsed.csv"


@pytest.mark.thorough(but=("sqlite",))
def test_a_released_csv_brought_into_a_new_project_is_released_again_as_it_was(
    tmp_path, project_url, released
):
    """Judgements, rationale and proposals survive the way out and in, on both engines; a second import does nothing."""
    settings = make_world(tmp_path / "p", n_images=20, db_url=project_url)

    first = import_results(settings, released, SANDBOX)
    second = import_results(settings, released, SANDBOX)
    harvest(settings, SANDBOX, reparse=True)
    run_build(settings)

    rows = rows_of(released.read_bytes())
    assert rows_of((settings.project / "release" / "mturk_parsed.csv").read_bytes()) == rows
    assert (first.status, second.status) == ("done", "nothing_to_do")
    assert first.counts["fetched"] == first.counts["judgements"] == len({row[3:] for row in rows[1:]})
    assert second.counts["fetched"] == 0
    with open_database(settings.db_url, read_only=True) as session:
        stored = judgements.judgements(session, SANDBOX)
        kinds = {row.name: row.kind for row in proposals.annotators(session)}
        said = [
            cell
            for row in answers.assignments(session, SANDBOX)
            for cell in parses.raw(session, [row.id])[0].raw_xml.partition("<?mitl-rows ")[2:]
        ]
    assert {row.record.source for row in stored} == {JudgementSource.IMPORT}
    assert set(kinds.values()) == {AnnotatorKind.RANKING}
    assert len(said) == first.counts["fetched"]


def test_a_known_annotator_keeps_its_configuration(tmp_path, released):
    """What a file says of `near` does not replace the project's own."""
    settings = make_world(tmp_path / "p", n_images=20)
    run_propose(settings)
    with open_database(settings.db_url, read_only=True) as session:
        before = proposals.annotators(session)

    import_results(settings, released, SANDBOX)

    with open_database(settings.db_url, read_only=True) as session:
        assert proposals.annotators(session) == before


def test_a_release_of_text_ids_is_known_by_its_numbers(tmp_path, monkeypatch):
    """Its CSV names string ids by stand-in integers; a project with the same items finds them again."""
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_text("image_id,caption_id,caption\nb,x,one\na,y,two\n", encoding="utf-8")
    Path("m.csv").write_text(HEADER + "clip,1,0.5,2,1,1,,\n", encoding="utf-8")
    ok("init", "--dataset", "table", "--captions", "pairs.csv")

    ok("harvest", "--from", "m.csv")
    ok("build-dataset", "--out", "r")

    assert rows_of(Path("r/mturk_parsed.csv").read_bytes())[1:] == [
        ("clip", "1", "0.5", "2", "1", "1", "", "")
    ]
    read = read_result_file(Path("r/mturk_parsed.csv"))
    assert read.columns == OFFICIAL_COLUMNS


def test_numbers_of_a_release_are_not_taken_for_ids_that_look_alike(tmp_path, monkeypatch):
    """The numbers are places in the order of the texts, where 10 comes before 2; what fits both ways is refused."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{id_},{id_},text {id_}\n" for id_ in ("1", "2", "10", "x"))
    Path("pairs.csv").write_text("image_id,caption_id,caption\n" + rows, encoding="utf-8")
    Path("numbers.csv").write_text(HEADER + "clip,1,0.5,2,2,1,,\nclip,2,0.5,4,2,1,,\n", encoding="utf-8")
    Path("either.csv").write_text(HEADER + "clip,1,0.5,2,2,1,,\n", encoding="utf-8")
    ok("init", "--dataset", "table", "--captions", "pairs.csv")

    assert "fit as the data set's own and as the numbers" in fails(1, "harvest", "--from", "either.csv")
    ok("harvest", "--from", "numbers.csv")
    ok("build-dataset", "--out", "r")

    assert [row[3:5] for row in rows_of(Path("r/mturk_parsed.csv").read_bytes())[1:]] == [
        ("2", "2"),
        ("4", "2"),
    ]


def test_unknown_ids_and_columns_are_refused_until_said_otherwise(tmp_path, monkeypatch):
    """Listed with their count; `--skip-unknown` leaves them out; a foreign column must be said to hold nothing."""
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_text("image_id,caption_id,caption\n1,7,one\n2,8,two\n", encoding="utf-8")
    rows = "clip,1,0.5,7,1,1,,\nclip,2,0.5,8,1,4,1,\nclip,1,0.5,99,2,1,,\n"
    Path("m.csv").write_text(HEADER + rows, encoding="utf-8")
    wide = "".join(f"{line},x\n" for line in rows.splitlines())
    Path("wide.csv").write_text(HEADER.strip() + ",worker\n" + wide, encoding="utf-8")
    Path("keep.toml").write_text('keep = ["work*"]\n', encoding="utf-8")
    ok("init", "--dataset", "table", "--captions", "pairs.csv")

    assert (
        "answers in 'm.csv' are about pairs that this project lacks, 1 in all: image '2' with caption '99'"
        in fails(1, "harvest", "--from", "m.csv")
    )
    assert "has the column 'worker', which its layout (mturk_parsed) does not know" in fails(
        1, "harvest", "--from", "wide.csv"
    )
    done = ok("harvest", "--from", "wide.csv", "--columns", "keep.toml", "--skip-unknown", "--json").json
    assert (done["counts"]["judgements"], done["counts"]["left_out"]) == (2, 1)
    assert any("1 submissions were left out" in warning for warning in done["warnings"])


def test_answers_that_are_here_already_are_not_counted_twice(tmp_path, monkeypatch):
    """The project's own release, or the same work in other words, is refused; an insisting user is believed."""
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_text("image_id,caption_id,caption\n1,7,one\n2,8,two\n", encoding="utf-8")
    rows = "clip,1,0.5,7,1,1,,\nclip,2,0.5,8,1,3,1,\nclip,1,0.5,8,2,4,,\n"
    lines = rows.splitlines(keepends=True)
    Path("m.csv").write_text(HEADER + "".join(reversed(lines)), encoding="utf-8")
    Path("again.csv").write_text(HEADER + "".join(lines[1:] + lines[:1]), encoding="utf-8")
    Path("others.csv").write_text(HEADER + rows.replace(",1,3,1", ",1,2,2"), encoding="utf-8")
    ok("init", "--dataset", "table", "--captions", "pairs.csv")
    ok("harvest", "--from", "m.csv")
    ok("build-dataset", "--out", "r")
    size = len(stored_answers(tmp_path))

    for file in ("again.csv", "r/mturk_parsed.csv"):
        said = fails(1, "harvest", "--from", file)
        assert said.startswith(
            f"3 of the 3 answers in {Path(file).name!r} on pairs that were judged here are here"
        )
        assert "say --count-again" in said
    assert len(stored_answers(tmp_path)) == size
    other = ok("harvest", "--from", "others.csv", "--json").json
    assert any("3 of the pairs had been judged here before" in warning for warning in other["warnings"])
    ok("harvest", "--from", "again.csv", "--count-again")

    assert len(stored_answers(tmp_path)) == 3 * size


def stored_answers(project: Path) -> list[object]:
    """All that the project has."""
    with open_database(load_settings(project, environ={}).db_url, read_only=True) as session:
        return list(judgements.judgements(session, Environment.LIVE))
