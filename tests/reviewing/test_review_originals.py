"""Exclusion lists made by people: refused originals, and duplicates of a training set."""

from __future__ import annotations

import csv
import importlib.util

import pytest
from cli_kit import fails, mitl, ok
from PIL import Image, ImageDraw, ImageFilter

from mitl.datasets.cxc import read_sits
from mitl.datasets.duplicates import nearest, picture_hashes
from mitl.datasets.exclusions import paper_exclusions, read_exclusions
from mitl.datasets.official import official_positives
from mitl.db.session import open_database
from mitl.db.store import items
from mitl.positives.pair_answers import PairAnswer
from mitl.records import ExclusionKind, Label, Pair
from mitl.stages.releasing.originals import refused_originals

YES, WEAK_YES, WEAK_NO, NO = Label


@pytest.mark.parametrize(
    ("label", "score", "refused"),
    [
        (NO, None, True),
        (WEAK_NO, None, False),
        (YES, 2.9, True),
        (None, 2.99, True),
        (None, 3.0, False),
        (None, None, False),
        (NO, 5.0, True),
    ],
)
def test_an_original_is_refused_by_a_plain_no_or_by_cxc(label, score, refused):
    """As in appendix C.1: the lowest answer, or a rating under CxC's own threshold."""
    pair = Pair(1, 1)
    answers = {} if label is None else {pair: PairAnswer(label, 1, 0.0)}

    found = refused_originals([pair], answers, {} if score is None else {pair: score})

    assert bool(found) is refused


def test_only_originals_are_looked_at():
    """What CxC rates low elsewhere is no fault of the data set."""
    assert refused_originals([Pair(1, 1)], {Pair(1, 2): PairAnswer(NO, 1, 0.0)}, {Pair(2, 1): 0.0}) == []


def test_cxc_refuses_only_captions_that_the_paper_lists(shared_data):
    """On the COCO test split: 29 of the paper's 32 captions, and none besides."""
    if importlib.util.find_spec("eccv_caption") is None:
        pytest.skip("the package eccv_caption is missing")
    own_image = {caption: image for image, caption in official_positives("original").pairs()}
    own = {
        Pair(int(rating.image_external_id), int(rating.caption_external_id)): rating.score
        for rating in read_sits(shared_data / "cxc" / "sits_test.csv")
        if own_image.get(rating.caption_external_id) == rating.image_external_id
    }
    listed = {int(entry.caption_external_id) for entry in paper_exclusions() if entry.caption_external_id}

    refused = {one.pair.caption_id for one in refused_originals(list(own), {}, own)}

    assert len(own) == 25_000 and len(refused) == 29 and refused < listed


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Two images with two captions each; CxC refuses two of the originals."""
    monkeypatch.chdir(tmp_path)
    rows = "image_id,caption_id,caption\n1,11,a red square\n1,12,no picture here\n2,21,a dog\n2,22,a cat\n"
    (tmp_path / "pairs.csv").write_text(rows)
    ok("init", "--dataset", "table", "--captions", "pairs.csv")
    from mitl.settings import load

    settings = load(tmp_path, environ={})
    with open_database(settings.db_url) as session:
        from mitl.records import Rating

        dataset = items.dataset(session)
        items.add_ratings(session, dataset.id, [Rating("1", "12", 0.5, "x"), Rating("2", "22", 2.0, "x")])
        session.commit()
    return settings


def entries(settings):
    with open_database(settings.db_url, read_only=True) as session:
        return {(row.kind, row.source) for row in items.exclusions(session)}


def test_a_persons_verdicts_make_the_exclusion_lists(project, tmp_path):
    """Meaningless captions go with all pairs, wrong ones from their image; minds may be changed."""
    assert ok("review", "--originals", "--json").json["counts"]["captions"] == ["12", "22"]

    ok("review", "originals", "meaningless", "12")
    ok("review", "originals", "wrong", "22")
    assert ok("review", "originals", "wrong", "22", "--json").json["status"] == "nothing_to_do"
    assert {kind for kind, _ in entries(project)} == {ExclusionKind.CAPTION, ExclusionKind.PAIR}
    assert ok("review", "originals", "--json").json["counts"]["waiting"] == 0

    ok("review", "originals", "export", "--out", "lists.csv")
    exported = read_exclusions(tmp_path / "lists.csv")
    assert [(e.kind, e.image_external_id, e.caption_external_id) for e in exported] == [
        (ExclusionKind.CAPTION, None, "12"),
        (ExclusionKind.PAIR, "2", "22"),
    ]
    again = ok("review", "originals", "export", "--out", "lists.csv", "--json").json
    assert again["status"] == "nothing_to_do"

    ok("review", "originals", "keep", "12", "22")
    assert entries(project) == set()
    assert "give --replace" in fails(2, "review", "originals", "export", "--out", "lists.csv")
    assert read_exclusions(tmp_path / "lists.csv") == exported
    ok("review", "originals", "export", "--out", "lists.csv", "--replace")
    assert list(read_exclusions(tmp_path / "lists.csv")) == []


def test_lists_that_came_with_the_data_set_stay(project, tmp_path):
    """Keeping a caption takes back only what this review wrote; what is listed already does not wait."""
    (tmp_path / "list.csv").write_text("kind,caption_id,reason,source\ncaption,12,blank,paper\n")
    ok("init", "--dataset", "table", "--captions", "pairs.csv", "--exclude", "list.csv")

    assert ok("review", "originals", "--json").json["counts"]["captions"] == ["22"]
    ok("review", "originals", "meaningless", "12")
    ok("review", "originals", "export", "--out", "out.csv")
    assert [entry.source for entry in read_exclusions(tmp_path / "out.csv")] == ["paper"]
    ok("review", "originals", "keep", "12")
    assert entries(project) == {(ExclusionKind.CAPTION, "paper")}


def test_an_unknown_caption_changes_nothing(project):
    """One clear line, and the others named beside it are not decided either."""
    outcome = mitl("review", "originals", "wrong", "22", "999")

    assert outcome.status == 1 and "no caption '999'" in outcome.error
    assert entries(project) == set()


def picture(seed):
    """A drawing with large shapes."""
    import random

    rng = random.Random(seed)
    image = Image.new("RGB", (160, 120), tuple(rng.randrange(256) for _ in range(3)))
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        x, y = rng.randrange(120), rng.randrange(90)
        box = (x, y, x + rng.randrange(20, 80), y + rng.randrange(20, 80))
        draw.ellipse(box, fill=tuple(rng.randrange(256) for _ in range(3)))
    return image


@pytest.fixture
def pictures(tmp_path):
    """Ten of ours; a training set of twenty others and a scaled, blurred JPEG copy of our fourth."""
    pytest.importorskip("imagehash")
    ours, others = tmp_path / "ours", tmp_path / "train" / "deep"
    ours.mkdir()
    others.mkdir(parents=True)
    for seed in range(10):
        picture(seed).save(ours / f"{seed}.png")
    for seed in range(100, 120):
        picture(seed).save(others / f"{seed}.jpg")
    picture(3).resize((320, 240)).filter(ImageFilter.GaussianBlur(1)).save(others / "copy.tif")
    return ours, others


def test_a_copy_is_found_though_it_was_scaled_and_blurred(pictures):
    """And no other picture is taken for one."""
    ours, others = (sorted(folder.iterdir()) for folder in pictures)

    (found,) = nearest(picture_hashes(ours), picture_hashes(others))

    assert (ours[found.place].name, others[found.other].name) == ("3.png", "copy.tif")


def test_the_command_lists_copies_and_takes_them_out(pictures, tmp_path, monkeypatch):
    """A person looks in between; a second time there is nothing to do."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{n},{n}{m},words,{n}.png\n" for n in range(10) for m in range(2))
    (tmp_path / "pairs.csv").write_text("image_id,caption_id,caption,file\n" + rows)
    ok("init", "--dataset", "table", "--captions", "pairs.csv", "--images", "ours")

    found = ok("review", "duplicates", "train", "--json").json["counts"]
    assert [one["image"] for one in found["duplicates"]] == ["3"] and found["others"] == 21

    ok("review", "duplicates", "--exclude", "3")
    assert ok("review", "duplicates", "--exclude", "3", "--json").json["status"] == "nothing_to_do"
    ok("review", "originals", "export", "--out", "lists.csv")
    assert [row["image_id"] for row in csv.DictReader((tmp_path / "lists.csv").read_text().splitlines())] == [
        "3"
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no folder 'nowhere'"),
        (["empty"], "holds no pictures"),
        (["ours"], "is the project's own picture"),
        ([], "name the FOLDER of a training set's pictures"),
        (["--exclude", "77"], "there is no image '77'"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(pictures, tmp_path, monkeypatch, words, said):
    """Missing folders, our own files, unknown images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "pairs.csv").write_text("image_id,caption_id,caption,file\n1,1,words,1.png\n")
    ok("init", "--dataset", "table", "--captions", "pairs.csv", "--images", "ours")

    outcome = mitl("review", "duplicates", *words)

    assert outcome.status in (1, 2) and said in outcome.error
