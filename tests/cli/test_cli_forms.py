"""What is typed and read of data sets of every form has their own names of directions and items."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_kit import fails, ok
from kinds_kit import scored_projects

from mitl.records import StageResult, Table
from mitl.records.forms import IMAGES, SET_FORMS, SOUNDS, TEXTS, message_of_form, result_of_form
from mitl.settings import load
from mitl.stages.setup.forms import form_of

FORMS = pytest.mark.parametrize("form", SET_FORMS.values(), ids=map("-".join, SET_FORMS))
MODEL = ("--model", "m=images.npz,captions.npz", "--no-intervals")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A project a form, with a release and a model in files."""
    return scored_projects(tmp_path_factory.mktemp)


@pytest.fixture
def project(folders, form, monkeypatch):
    """The folder of a form, entered."""
    monkeypatch.chdir(folders[form.sides])
    return folders[form.sides]


@FORMS
def test_scores_are_keyed_by_the_forms_own_directions(project, form):
    """In a project and, by the release's manifest, outside any; typed by either name, one direction is scored."""
    every = ok("evaluate", "--release", "release", *MODEL, "--json").json["counts"]
    assert set(every["scores"]["release"]["m"]) == set(every["queries"]["release"]) == set(form.ways)

    for place, way in enumerate(form.ways):
        for typed in (way, IMAGES.ways[place]):
            one = ok("evaluate", "--release", "release", *MODEL, "--direction", typed, "--json").json[
                "counts"
            ]
            assert list(one["scores"]["release"]["m"]) == [way]
    assert f"  {form.ways[1]}  " in ok("evaluate", "--release", "release", *MODEL).out
    kept = json.loads(Path("runs/evaluation/scores.json").read_text())
    assert set(kept["release"]["m"]) >= set(IMAGES.ways), "what is stored stays as it is"

    release, model = (
        Path("release").resolve(),
        f"m={Path('images.npz').resolve()},{Path('captions.npz').resolve()}",
    )
    outside = ok(
        "evaluate", "--project", release.parent / "nowhere", "--release", release, "--model", model, "--json"
    )
    assert set(outside.json["counts"]["scores"]["release"]["m"]) == set(form.ways)


@FORMS
def test_another_forms_direction_is_refused(project, form):
    """With the data set's own, and what they mean."""
    foreign = next(other for other in SET_FORMS.values() if other is not form and other is not IMAGES).ways[0]
    message = fails(2, "evaluate", "--release", "release", *MODEL, "--direction", foreign)
    a, b = form.nouns
    assert (
        f"this data set has no direction {foreign!r}; give one of its own ({form.ways[0]}: {a} search {b}; "
        in message
    )
    assert f"{form.ways[1]}: {b}" in message
    assert "'x2t' is not one of" in fails(2, "publish", "--sandbox", "--direction", "x2t")


@FORMS
def test_errors_name_the_forms_items(project, form):
    """What the user wrote stays: names of files, ids."""
    with np.load("images.npz") as found:
        ids, vectors = found["ids"], found["embedding"]
    np.savez("image.npz", ids=ids[1:], embedding=vectors[1:])
    left, right = form.nouns
    message = fails(1, "evaluate", "--release", "release", "--model", "m=image.npz,captions.npz")
    assert f"'image.npz' lacks 1 of {len(ids)} {left}; first: " in message

    np.savez("image.npz", ids=ids, embedding=vectors * 0)
    message = fails(1, "evaluate", "--release", "release", "--model", "m=captions.npz,image.npz")
    assert f"of 6 of 6 {right} in 'image.npz' are all zeros" in message


@FORMS
def test_rankings_may_be_named_by_the_forms_own_directions(project, form):
    """As a file for each direction, and as keys of one."""
    lists = {way: dict(ranked) for way, ranked in _rankings(form).items()}
    Path("both.json").write_text(json.dumps(lists))
    words = ("--no-intervals", "--short", "zero", "--json", "--release", "release")
    both = ok("evaluate", "--rankings", "both.json", *words).json["counts"]["scores"]["release"]["rankings"]
    files = []
    for way, ranked in lists.items():
        Path(f"mine.{way}.json").write_text(json.dumps(ranked))
        files += ["--rankings", f"mine.{way}.json"]
    assert ok("evaluate", *files, *words).json["counts"]["scores"]["release"]["rankings"] == both
    assert set(both) == set(form.ways)


def _rankings(form):
    listed = []
    for side in ("images", "captions"):
        with np.load(f"{side}.npz") as found:
            listed.append(found["ids"].tolist())
    left, right = listed
    return {form.ways[0]: dict.fromkeys(left, right), form.ways[1]: dict.fromkeys(right, left)}


def test_only_words_are_renamed():
    """Names of files, models and options that hold a direction or an item stay, and images need no look-up."""
    told = (
        "the image of caption 'an image' in images.npz: i2t of x.i2t.json and de-i2t, --image-queries, `i2t`"
    )
    assert message_of_form(told, lambda: TEXTS) == (
        "the document of query 'an image' in images.npz: d2q of x.i2t.json and de-i2t, --image-queries, `d2q`"
    )
    assert message_of_form(told, lambda: IMAGES) == told

    result = StageResult(
        counts={"queries": {"i2t": 1}, "pairs": [{"direction": "t2i"}], "m.i2t": 2},
        warnings=("no caption is left",),
        tables=(Table("i2t", ("direction",), (("t2i", 1),)),),
        lines=("images and i2t",),
        next="mitl publish --direction i2t",
    )
    assert result_of_form(result, lambda: SOUNDS) == StageResult(
        counts={"queries": {"a2t": 1}, "pairs": [{"direction": "t2a"}], "m.i2t": 2},
        warnings=("no caption is left",),
        tables=(Table("a2t", ("direction",), (("t2a", 1),)),),
        lines=("images and a2t",),
        next="mitl publish --direction a2t",
    )
    assert result_of_form(StageResult(lines=("nothing",)), pytest.fail) == StageResult(lines=("nothing",))


def test_without_a_project_the_form_is_that_of_images(tmp_path):
    """Also where the folder that is named holds no release."""
    assert form_of(load(tmp_path, environ={}), [tmp_path]) is IMAGES


def test_one_direction_under_two_names_is_refused_and_not_guessed(project_of_sounds):
    """In a file of rankings as in mitl.toml."""
    file = project_of_sounds / "mine.json"
    file.write_text(json.dumps({"i2t": {"item-10": ["item-100"]}, "a2t": {"item-10": ["item-200"]}}))
    message = fails(1, "evaluate", "--release", "release", "--rankings", file)
    assert "has 'i2t' and 'a2t', which name the same direction; leave one out" in message


@pytest.fixture
def project_of_sounds(folders, monkeypatch):
    """Entered."""
    monkeypatch.chdir(folders[SOUNDS.sides])
    return folders[SOUNDS.sides]
