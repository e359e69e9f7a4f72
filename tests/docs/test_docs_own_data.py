"""docs/own-data.md: its walk is run on small files, every form is read as the page says, every refusal is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_kit import fails, ok
from docs_kit import ROOT, mitl_lines
from text_kit import write_beir

from mitl.datasets.columns import NAMES
from mitl.datasets.scenes.files import write_world
from mitl.datasets.scenes.world import generate
from mitl.datasets.table import TableReading, Told, read_table
from mitl.datasets.text_sets import read_text_set
from mitl.positives.loading import read_release
from mitl.records import Direction

DOCUMENT = "docs/own-data.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")
FILES = dict(re.findall(r"```\w+ (\S+\.\w+)\n(.*?)```", TEXT, re.DOTALL))
LINES = mitl_lines(DOCUMENT)
FIRST_OF_TEXTS = next(place for place, words in enumerate(LINES) if "my-texts" in words)
FIRST_OF_SOUNDS = next(place for place, words in enumerate(LINES) if "my-sounds" in words)
PICTURES, TEXTS, OTHERS = (
    LINES[:FIRST_OF_TEXTS],
    LINES[FIRST_OF_TEXTS:FIRST_OF_SOUNDS],
    LINES[FIRST_OF_SOUNDS:],
)
FORMS = re.findall(r"```\w+ (\S+\.\w+)\n([^`]*)```\n\n```text\n(read as: .*?)\n```", TEXT, re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, entered."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own_pictures(folder: Path) -> None:
    """24 pictures and a table of some of their captions, as the page lays them out."""
    world = generate(24, seed=3)
    write_world(world, folder / "dataset")
    (folder / "my-pictures" / "images").mkdir(parents=True)
    header, first = FILES["my-pictures/captions.csv"].splitlines()[:2]
    names = {}
    for place, image in enumerate(world.retrieval_set.images, start=1):
        names[image.external_id] = f"{place:04d}.png"
        (folder / str(image.file)).rename(folder / "my-pictures" / "images" / f"{place:04d}.png")
    rows = [f'{names[c.image_external_id]},"{c.text}"' for c in world.retrieval_set.captions[::3]]
    assert first.startswith("0001.png,")
    (folder / "my-pictures" / "captions.csv").write_text("\n".join([header, *rows]) + "\n")


@pytest.mark.slow
def test_the_walk_runs_from_own_pictures_to_a_release(folder, monkeypatch):
    """Every command, as the page has it; what `init` says comes next is the page's next command."""
    pytest.importorskip("torch")
    own_pictures(folder)
    walk = [words for words in PICTURES if "other-project" not in words]
    assert [words[0] for words in walk] == [
        "init", "propose", "publish", "simulate", "harvest", "review", "build-dataset", "evaluate", "report",
    ]  # fmt: skip

    said = ok(*walk[0])
    assert said.err == ""
    assert "\nread as: image = column `filename`, image id = column `filename`, caption =" in said.out
    assert said.out.splitlines()[-1].endswith(f"mitl {' '.join(walk[1])}")
    monkeypatch.chdir(folder / "my-project")
    for words in walk[1:]:
        ok(*words)
    assert {"positives.parquet", "README.md"} <= {path.name for path in Path("release").iterdir()}
    assert Path("report.html").stat().st_size > 10_000
    assert ok(*walk[0][:1], *walk[0][2:3], "../my-pictures", "--json").json["status"] == "nothing_to_do"


def test_the_walk_of_texts_runs_to_files_that_are_read_again(folder, monkeypatch):
    """Every command, as the page has it; what goes out as BEIR's files comes in with the positives of the release."""
    pytest.importorskip("bm25s", reason="the extra mitl[texts] is missing")
    write_beir(folder / "my-texts", 25)

    assert ok(*TEXTS[0]).out.splitlines()[-1].endswith(f"mitl {' '.join(TEXTS[1])}")
    monkeypatch.chdir(folder / "my-search")
    for words in TEXTS[1:]:
        ok(*words)

    assert not list(Path("release").glob("*image*")) and not Path("release/mturk_parsed.csv").exists()
    for name in ("README.md", "datasheet.md"):
        prose = re.sub(r"`[^`]*`", "", Path("release", name).read_text())
        assert not re.search(r"\b(images?|captions?|pictures?)\b", prose, re.IGNORECASE), name
    again = read_text_set(Path("as-beir/q2d"), "beir", TableReading(), Told())
    released = read_release(Path("release")).pairs(Direction.T2I)
    assert {(c.image_external_id, c.external_id) for c in again.captions} | {*again.positives} == released
    before = read_text_set(folder / "my-texts", "beir", TableReading(), Told())
    assert again.images == before.images
    assert sorted(path.name for path in Path("as-trec").iterdir()) == ["d2q.qrels", "q2d.qrels", "runs"]


def own_items(folder: Path, kind: str, table: str) -> None:
    """24 items of a world and a table that tells of them, as the page lays it out."""
    world = generate(24, seed=3, kind=kind)
    write_world(world, folder / "made")
    header, first = FILES[table].splitlines()[:2]
    files = (folder / table).parent / "files"
    files.mkdir(parents=True)
    names = {}
    for place, item in enumerate(world.retrieval_set.images, start=1):
        made = folder / "made" / str(world.file_name(item.external_id))
        names[item.external_id] = f"{place:04d}{made.suffix}"
        made.rename(files / names[item.external_id])
    rows = [
        f'{names[c.reference]},"{c.text}",{names[c.image_external_id]}'
        if c.reference
        else f'{names[c.image_external_id]},"{c.text}"'
        for c in world.retrieval_set.captions[::3]
    ]
    assert first.split(",")[0] == names["1"]
    (folder / table).write_text("\n".join([header, *rows]) + "\n")


@pytest.mark.parametrize(
    ("kind", "dataset", "table"),
    [
        ("sounds", "my-sounds", "my-sounds/captions.csv"),
        ("videos", "my-videos", "my-videos/captions.csv"),
        ("composed", "my-queries", "my-queries/queries.csv"),
    ],
)
def test_the_walks_of_other_kinds_run(folder, monkeypatch, kind, dataset, table):
    """Every command, as the page has it; the sounds' own go on to a release and a report, the others' to pages."""
    pytest.importorskip("av", reason="the extra mitl[media] is missing")
    own_items(folder, kind, table)
    (start,) = (place for place, words in enumerate(OTHERS) if dataset in words)
    init, propose = OTHERS[start : start + 2]
    rest = OTHERS[2 : next(place for place, words in enumerate(OTHERS) if "my-videos" in words)]

    said = ok(*init)
    assert said.err == "" and said.out.splitlines()[-1].endswith(f"mitl {' '.join(propose)}")
    monkeypatch.chdir(folder / init[1])
    for words in (propose, *(rest if kind == "sounds" else rest[:1])):
        ok(*words)
    assert (rest[0], rest[-1]) == (["publish", "--sandbox"], ["report"])
    if kind == "sounds":
        assert {"positives.parquet", "README.md"} <= {path.name for path in Path("release").iterdir()}
    again = ok(init[0], *init[2:3], f"../{dataset}", "--json").json
    assert again["status"] == "nothing_to_do"


@pytest.mark.parametrize(("name", "content", "told"), FORMS, ids=[name for name, _, _ in FORMS])
def test_every_form_is_read_as_the_page_says(folder, name, content, told):
    """The same two pictures, whatever the form, and the line that `init` prints."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    heard = Told()
    data = read_table(path, told=heard)

    assert heard.lines[0] == told
    if name.startswith("results"):
        assert [c.text for c in data.captions] == [
            "Two young guys with shaggy hair .",
            "Two friends outside .",
        ]
    else:
        assert {c.text for c in data.captions} == {"a dog on a beach", "a dog, wet", "a red bus"}
        assert len(data.images) == 2


def test_two_columns_for_one_role_are_asked_and_answered(folder):
    """By the command that the page shows."""
    (folder / "titled.csv").write_text(FILES["titled.csv"])
    (said,) = (words for words in mitl_lines(DOCUMENT) if "other-project" in words)

    assert "--columns caption=" in fails(1, *said[: said.index("--columns")])
    assert "caption = column `text`" in ok(*said).out


def test_the_page_names_what_is_known():
    """Forms, roles, and names that columns really have."""
    assert len(FORMS) == 5
    known = {name for names in NAMES.values() for name in names.split()}
    for row in re.findall(r"^\| `(\w+)` \| (.*?) \|", TEXT, re.MULTILINE):
        role, names = row
        assert set(re.findall(r"`(\w{2,})`", names)) <= known, role
