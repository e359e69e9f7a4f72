"""`mitl init` on data of one's own: what it prints, what it finds in the pictures, and the settings that it writes."""

from __future__ import annotations

import tomllib
import unicodedata
from contextlib import chdir

import pytest
from cli_kit import fails, ok
from PIL import Image

from mitl.settings import load

WHAT = ("a red mug", "a blue car", "green grass", "a white wall", "a black cat")


@pytest.fixture
def own(tmp_path):
    """A folder of five pictures and a table of their captions; the tests run beside it."""
    (tmp_path / "own" / "pictures").mkdir(parents=True)
    rows = ["filename,caption"]
    for place, text in enumerate(WHAT):
        Image.new("RGB", (60, 40), (40 * place, 90, 200)).save(tmp_path / "own" / "pictures" / f"{place}.png")
        rows += [f"{place}.png,{text}", f'{place}.png,"{text}, seen again"']
    (tmp_path / "own" / "captions.csv").write_text("\n".join(rows) + "\n")
    with chdir(tmp_path):
        yield tmp_path


def test_init_ends_with_what_was_read_and_three_examples(own):
    """Counts, then items from the start, the middle and the end, how columns were read, and the next step."""
    lines = ok("init", "project", "--dataset", "own").out.splitlines()

    assert next(line.split() for line in lines if line.startswith("  images ")) == ["images", "5"]
    assert [line.split() for line in lines if line.startswith("  with a file")] == [
        ["with", "a", "file", "5"]
    ]
    at = lines.index("examples")
    for line, place in zip(lines[at + 2 : at + 5], (0, 2, 4), strict=True):
        assert line.split()[0] == f"{place}.png" and line.rstrip().endswith((WHAT[place], "seen again"))
        assert f"pictures/{place}.png" in line
    assert lines[at + 5].startswith(
        "read as: image = column `filename`, image id = column `filename`, caption ="
    )
    assert lines[-1].endswith("mitl propose --annotator clip-mini --annotator vsrn-mini --top-k 1 --depth 1")


def test_examples_in_the_settings_are_settings_once_their_marks_are_gone(own):
    """The file is read as it is, and with every example switched on."""
    ok("init", "project", "--dataset", "own")
    path = own / "project" / "mitl.toml"
    text = path.read_text()
    assert load(own / "project").annotators == ()

    switched = [
        line.removeprefix("# ") if line.startswith("# [") or " = " in line else line
        for line in text.splitlines()
    ]
    path.write_text("\n".join(switched) + "\n")
    settings = load(own / "project")
    assert settings.annotators == ("my-clip", "my-vectors")
    assert (settings.top_k, settings.depth, settings.contact) == (1, 1, "you@example.org")
    assert set(tomllib.loads(path.read_text())["annotators"]) == {"my-clip", "my-vectors"}


def spoil(own):
    """A missing, a cut off, an empty and a doubled picture; only one is left whole."""
    pictures = own / "own" / "pictures"
    (pictures / "0.png").unlink()
    (pictures / "1.png").write_bytes((pictures / "1.png").read_bytes()[:70])
    (pictures / "2.png").write_bytes(b"")
    (pictures / "4.png").write_bytes((pictures / "3.png").read_bytes())


def test_check_items_names_every_picture_that_is_not_as_it_should_be(own):
    """As warnings, so that --json has them; what is mended later is found by the same command."""
    spoil(own)
    for command in (
        ("init", "plain", "--dataset", "own"),
        ("init", "plain", "--dataset", "own"),
        ("status", "--project", "plain"),
    ):
        told = ok(*command)
        assert "rehearse" not in told.out, "a network would miss a picture"
        assert ("1 of 5 images have neither" in told.err) == (command[0] == "init")
    found = ok("init", "project", "--dataset", "own", "--check-items", "--json").json

    warnings = found["warnings"]
    assert len(warnings) == 4
    assert warnings[0] == "image '0.png': there is no file '0.png'"
    assert warnings[1].startswith("image '1.png': ") and "1.png' cannot be read: " in warnings[1]
    assert warnings[2].endswith("2.png' is empty")
    assert warnings[3].endswith("4.png' is the same picture as image '3.png'")
    assert found["counts"]["pictures"] == {
        "missing": 1,
        "unreadable": 2,
        "silent": 0,
        "repeated": 1,
        "animated": 0,
    }

    for place in range(5):
        Image.new("RGB", (60, 40), (40 * place, 0, 0)).save(own / "own" / "pictures" / f"{place}.png")
    again = ok("init", "project", "--dataset", "own", "--check-items", "--json").json
    assert again["warnings"] == []
    assert again["counts"]["images_placed"] == 1


def test_files_are_found_through_links_and_however_accents_are_written(own):
    """Links to files and folders elsewhere, as in the hub's cache; a name as macOS writes it.

    `..` leads nowhere, nor does a link to itself.
    """
    pictures, store = own / "own" / "pictures", own / "store"
    store.mkdir()
    (pictures / "0.png").rename(store / "blob")
    (pictures / "0.png").symlink_to(store / "blob")
    (pictures / "1.png").rename(store / "1.png")
    (pictures / "more").symlink_to(store)
    (pictures / "2.png").rename(pictures / unicodedata.normalize("NFD", "Grün.png"))
    (pictures / "3.png").rename(own / "own" / "3.png")
    (pictures / "4.png").unlink()
    (pictures / "4.png").symlink_to("4.png")
    table = own / "own" / "captions.csv"
    named = table.read_text().replace("1.png", "more/1.png").replace("2.png", "Grün.png")
    table.write_text(named.replace("3.png", "../3.png"))

    done = ok("init", "project", "--dataset", "own", "--check-items", "--json").json
    missing = ["../3.png", "4.png"]
    assert done["warnings"] == [f"image '{name}': there is no file '{name}'" for name in missing]


def test_animated_pictures_are_told(own):
    """They can be shown; machines see a frame."""
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    frames[0].save(own / "own" / "pictures" / "0.gif", save_all=True, append_images=frames[1:])
    table = own / "own" / "captions.csv"
    table.write_text(table.read_text().replace("0.png", "0.gif"))

    (warning,) = ok("init", "project", "--dataset", "own", "--check-items", "--json").json["warnings"]
    assert warning.endswith("0.gif' is animated (2 frames); machines see the first one alone")


def test_where_no_picture_can_be_used_nothing_is_made(own):
    """Exit status 1, one line, no project."""
    for place in range(5):
        (own / "own" / "pictures" / f"{place}.png").write_bytes(b"no picture")
    message = fails(1, "init", "project", "--dataset", "own", "--check-items")

    assert message.startswith("none of the 5 pictures can be used, as image '0.png': ")
    elsewhere = own / "elsewhere.png"
    Image.new("RGB", (60, 40)).save(elsewhere)
    (own / "own" / "captions.csv").write_text(f"image,caption\n{elsewhere},a thing\n")
    message = fails(1, "init", "project", "--dataset", "own", "--check-items")
    assert "elsewhere.png' lies outside the folder of the table; put" in message and "--images" in message
    assert not (own / "project").exists()


def test_a_data_set_that_is_not_there_is_one_line(own):
    """With the kinds, and the one that was probably meant."""
    said = fails(2, "init", "project", "--dataset", "scene")

    assert "there is no data set 'scene'; 'scenes' is one: give 'scenes', 'coco'" in said
    assert "leave one out" in fails(2, "init", "--dataset", "own", "--captions", "own/captions.csv")
    assert "which is for scenes" in fails(2, "init", "--dataset", "own", "--n-images", "3")
    assert not (own / "project").exists()
