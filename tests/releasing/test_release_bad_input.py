"""What a release cannot be made from: one clear line, and the project and its folders stay as they were."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from cli_kit import fails, ok

from mitl.datasets.files import read_rows

CAPTIONS = "caption_id,image_id,text\n11,1,a dog\n12,1,a brown dog\n21,2,two cats\n"
SITS = "caption,image,agg_score,sampling_method\n"
OFFICIAL = "model,ranking,score,cid,iid,annotation,shortcoming,shortcoming2\npvse,1,0.5,11,2,1,,\npvse,2,0.4,21,1,4,,\n"


def rated(caption: int, image: int, score: str) -> str:
    """A row as CxC writes it."""
    return f"COCO_val2014:sentid:{caption},COCO_val2014_{image:012d}.jpg,{score},c2i_original\n"


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> Path:
    """A project of three captions without any judgement."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "captions.csv").write_text(CAPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ok("init", "--dataset", "coco", "--captions", "captions.csv")
    return folder


@pytest.fixture
def project(loaded, tmp_path, monkeypatch) -> Path:
    """A copy of it, entered."""
    folder = tmp_path / "project"
    shutil.copytree(loaded, folder)
    monkeypatch.chdir(folder)
    return folder


def load(*words: str) -> tuple[str, ...]:
    return ("init", "--dataset", "coco", "--captions", "captions.csv", *words)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("caption,image,sampling_method\n", "has no column 'agg_score'"),
        (SITS + rated(11, 1, "4") + rated(12, 1, "5.01"), "row 2 of 'sits.csv' has the score '5.01'"),
        (SITS + rated(11, 1, "-0.1"), "has the score '-0.1', but scores go from 0 to 5"),
        (SITS + rated(11, 1, "high"), "has the score 'high'"),
        (SITS + rated(11, 1, "nan"), "has the score 'nan'"),
        (
            SITS + "11,COCO_val2014_000000000001.jpg,4,x\n",
            "names '11' as its caption; CxC writes captions as 'COCO_val2014:sentid:<id>'",
        ),
        (SITS + rated(11, 1, "4") + rated(11, 1, "2"), "comes twice"),
        (SITS + "COCO_val2014:sentid:11\n", "line 2 of 'sits.csv' has more or fewer cells"),
        (SITS.replace(",", ";") + "a;b;4,5;x\n", "separated by ';'; save it with commas between columns"),
        (f"sep=,\n{SITS}", "tells Excel how cells are separated; delete that line"),
        (SITS.replace("\n", ",agg_score\n"), "has two columns called 'agg_score'; rename one of them"),
        ("", "sits.csv"),
    ],
)
def test_a_bad_file_of_ratings_changes_nothing(content, named, project):
    """Neither in a loaded project nor as a set to compare."""
    Path("sits.csv").write_text(content)
    before = everything(project)

    assert named in fails(1, *load("--cxc", "sits.csv"))
    assert named in fails(1, "compare", "cxc:sits.csv", "official-eccv")

    assert everything(project) == before


def test_empty_columns_at_the_end_of_a_spreadsheets_csv_are_passed_over(tmp_path: Path) -> None:
    """They have no name, so none is read in place of another."""
    path = tmp_path / "scores.csv"
    path.write_text("a,b,,\n1,2,,\n")

    assert read_rows(path, "scores", ("a", "b")) == [{"a": "1", "b": "2"}]


def test_ratings_of_unknown_items_are_counted_and_left_out(project):
    """In a project that is loaded already as in a new one; a pair is named, so that the wrong file is seen."""
    Path("sits.csv").write_text(SITS + rated(11, 1, "4") + rated(99, 1, "4") + rated(11, 7, "3"))
    said = "2 of 3 human ratings name images or captions outside the data set, as image 1 with caption 99"

    first, again = (
        ok(*load("--cxc", "sits.csv"), "--json").json,
        ok(*load("--cxc", "sits.csv"), "--json").json,
    )
    new = ok(*load("--cxc", "sits.csv"), "--project", "new", "--json").json

    assert [found["counts"]["ratings"] for found in (first, again, new)] == [1, 0, 1]
    for found in (first, again, new):
        assert found["warnings"] == [f"{said}; they were left out"]


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("caption,,99,empty", "the exclusion list 'mine.csv' names caption '99', which is not in 'coco'"),
        ("pair,1,99,wrong", "names caption '99'"),
        ("pair,7,11,wrong", "names image '7'"),
        ("image,7,,twice", "names image '7'"),
        ("captions,,11,empty", "has the kind 'captions'; known: caption, pair, wrong, image"),
    ],
)
def test_an_exclusion_list_of_unknown_items_changes_nothing(row, named, project):
    """Not even the entries before it are kept."""
    Path("mine.csv").write_text(f"kind,image_id,caption_id,reason\ncaption,,12,empty\n{row}\n")
    before = everything(project)

    assert named in fails(1, *load("--exclude", "mine.csv"))

    assert everything(project) == before


@pytest.mark.parametrize("more", [(), ("--official-filters",), ("--recipe", "paper"), ("--check-privacy",)])
def test_without_any_judgement_there_is_nothing_to_release(more, project):
    """No folder is made, and the next step is named."""
    said = fails(1, "build-dataset", "--out", "release", *more)

    assert said.startswith("there are no judgements and no earlier ratings, so there is nothing to release,")
    assert said.endswith("; `mitl status` says what comes first")
    assert not Path("release").exists()


def test_originals_stay_unless_refused_and_the_papers_recipe_leaves_them_out(project):
    """By default nothing of a data set is lost; options that contradict each other are refused."""
    Path("sits.csv").write_text(SITS + rated(11, 2, "4") + rated(13, 2, "1"))
    ok(*load("--cxc", "sits.csv"))
    names = {"repaired": (), "same": ("--with-originals",), "paper": ("--recipe", "paper")}
    counts = {
        name: ok("build-dataset", "--out", name, *more, "--json").json["counts"]
        for name, more in names.items()
    }

    kept = {name: (found["recipe"], found["positives"]) for name, found in counts.items()}
    assert kept["repaired"] == kept["same"]
    assert (kept["repaired"][0], kept["paper"]) == ("repair", ("paper", 1))
    assert counts["repaired"]["positives_by_source"] == {
        "judgement": 0,
        "cxc": 1,
        "original": kept["same"][1] - 1,
    }
    assert json.loads(Path("paper/manifest.json").read_text())["configuration"]["recipe"] == "paper"
    said = fails(2, "build-dataset", "--out", "x", "--recipe", "paper", "--with-originals")
    assert said == "--recipe paper leaves originals out and --with-originals keeps them; give one of the two"
    assert "leave out either --official-filters or" in fails(
        1, "build-dataset", "--out", "x", "--recipe", "repair", "--official-filters"
    )


def test_a_release_names_the_files_that_ratings_were_read_from(project):
    """Each once, by name and sum; none where one may be missing, as in a project of an earlier version."""
    first, second, foreign = Path("sits [a].csv"), Path("more.csv"), Path("foreign.csv")
    first.write_text(SITS + rated(11, 2, "4") + rated(11, 7, "3"))
    second.write_text(SITS + rated(12, 2, "1") + rated(21, 1, "4"))
    foreign.write_text(SITS + rated(11, 7, "3"))
    for path in (first, second, first, foreign):
        ok(*load("--cxc", path))
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)]

    ok("build-dataset", "--out", "named")
    with sqlite3.connect("mitl.db") as connection:
        connection.execute("DELETE FROM rating_source WHERE name = 'more.csv'")
    ok("build-dataset", "--out", "unnamed")

    sheet, unnamed = (Path(folder, "datasheet.md").read_text() for folder in ("named", "unnamed"))
    assert (
        f"`cxc` in the tables, were read from sits \\[a\\].csv (1 rating, SHA-256 `{sums[0]}`) and "
        f"more.csv (2 ratings, SHA-256 `{sums[1]}`) in the layout of Crisscrossed Captions" in sheet
    )
    assert "sits" not in unnamed
    assert "nothing here tells them from another lab's" in unnamed
    derived = [json.loads(Path(folder, "croissant.json").read_text()) for folder in ("named", "unnamed")]
    assert f"Captions: sits [a].csv, SHA-256 {sums[0]}" in json.dumps(derived[0])
    assert '"ratings in the layout of Crisscrossed Captions"' in json.dumps(derived[1])


def test_ratings_alone_make_a_release_that_says_nobody_judged(project):
    """It can be compared, with a warning that its positives stand for verified ones."""
    Path("sits.csv").write_text(SITS + rated(11, 2, "4"))
    ok(*load("--cxc", "sits.csv"))
    Path("images.txt").write_text("1\n2\n")

    built = ok("build-dataset", "--out", "release", "--recipe", "paper", "--image-query-ids", "images.txt")
    ok("build-dataset", "--out", "all", "--image-query-ids", "images.txt")
    unlisted = ok("build-dataset", "--out", "unlisted", "--json").json
    compared = ok("compare", "release", "all", "--json").json

    assert "1 positive from 0 usable judgements" in built.out
    assert compared["counts"]["positives"]["all"] == {"i2t": 4, "t2i": 0}
    assert "all holds no judgements" in compared["warnings"][0]
    assert (
        "the two JSONs are empty; if you need them, name the queries with --image-query-ids"
        in unlisted["warnings"][0]
    )
    assert "They are empty" in Path("unlisted/README.md").read_text()
    with Path("mitl.toml").open("a") as settings:
        settings.write('\n[release]\ndate_published = "yesterday"\n')
    assert "is not a date; write it as" in fails(1, "build-dataset", "--out", "dated")
    assert not Path("dated").exists()


@pytest.mark.parametrize(
    ("forward", "backward", "named"),
    [
        ({"1": [11]}, {"11": [2]}, "image 1 and caption 11 match in one and not in the other"),
        ({"1": []}, {"11": [1]}, "image 1 and caption 11 match in one and not in the other"),
        ({"1": [11], "x": [12]}, {"11": [1]}, "'x'"),
        ([[1, 11]], {"11": [1]}, "holds no object of queries"),
        ({"1": 11}, {"11": [1]}, "gives query '1' no list of items"),
        ({"1": [11], "01": [12]}, {"11": [1]}, "lists query 1 twice; give it one list of positives"),
        ('{"1": [11], "1": [12]}', {"11": [1]}, "lists query 1 twice"),
        ({"1": ["1_1"]}, {"11": [1]}, "holds the id '1_1', but ids are integers"),
        ({"1": ["9" * 5000]}, {"11": [1]}, "but ids are integers"),
    ],
)
def test_jsons_that_contradict_each_other_are_no_set(forward, backward, named, project):
    """The pair or the entry at fault is named."""
    Path("torn").mkdir()
    Path("torn", "image_to_caption.json").write_text(
        forward if isinstance(forward, str) else json.dumps(forward)
    )
    Path("torn", "caption_to_image.json").write_text(json.dumps(backward))

    assert named in fails(1, "compare", "torn", "official-eccv")


def test_a_release_folder_that_exists_is_overwritten_only_when_asked(project):
    """The same release has nothing to do, another one needs --replace, and folders of others stay whatever is said."""
    Path("mturk_parsed.csv").write_text(OFFICIAL)
    ok("harvest", "--from", "mturk_parsed.csv")
    ok("build-dataset", "--out", "release")
    before = everything(Path("release"))

    assert "nothing to do" in ok("build-dataset", "--out", "release").out
    said = fails(1, "build-dataset", "--out", "release", "--recipe", "paper")
    assert said == (
        "'release' holds another release, of other judgements, rules or settings; nothing was overwritten; "
        "give --replace to put the new one in its place, or choose another folder"
    )
    assert everything(Path("release")) == before
    ok("build-dataset", "--out", "elsewhere", "--name", "release")
    assert list(everything(Path("elsewhere")).values()) == list(before.values())

    ok("build-dataset", "--out", "release", "--recipe", "paper", "--replace")
    assert everything(Path("release")) != before
    Path("notes").mkdir()
    Path("notes", "todo.txt").write_text("keep me")
    assert "is not a release, so it is left alone" in fails(1, "build-dataset", "--out", "notes", "--replace")
    assert Path("notes", "todo.txt").read_text() == "keep me"
    Path("newest").symlink_to("release")
    assert "'newest' is a link, and no link is replaced" in fails(
        1, "build-dataset", "--out", "newest", "--replace"
    )


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "there is no file 'ids.txt'"),
        ("", "'ids.txt' lists no ids"),
        ("11\n99\n", "caption '99' is not in the data set of 3 captions"),
    ],
)
def test_a_bad_list_of_queries_writes_nothing(content, named, project):
    """The list is read before the release is made."""
    Path("mturk_parsed.csv").write_text(OFFICIAL)
    ok("harvest", "--from", "mturk_parsed.csv")
    if content is not None:
        Path("ids.txt").write_text(content)

    assert named in fails(1, "build-dataset", "--out", "release", "--caption-query-ids", "ids.txt")
    assert not Path("release").exists()
