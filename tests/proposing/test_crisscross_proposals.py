"""`mitl propose --scheme crisscross`: encoders choose phase 1, people's ratings phase 2; twice changes nothing."""

from __future__ import annotations

import io
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from cli_kit import mitl, ok
from process_kit import project_settings
from sampled_kit import rate, samples_of
from world_kit import make_world

from annotators.item_encoders import BACKBONE, KNOWN, SENTENCES, WORDS
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.proposals.crisscross import BY_IMAGES, BY_TEXTS
from mitl.records import Decision
from mitl.records.similarity import METHODS, Likeness, SamplingMethod
from mitl.settings import Settings
from mitl.stages.proposing import crisscross as stage
from mitl.stages.proposing.crisscross_samples import FOLDER

N_IMAGES = 12
N_CAPTIONS = 5 * N_IMAGES
FROM_FILES = ("--text-encoder", "near", "--text-encoder", "far", "--image-encoder", "near")
"""Annotators of the small world that need no network."""
PHASE_1 = ("propose", "--scheme", "crisscross", *FROM_FILES)
PHASE_2 = ("propose", "--scheme", "crisscross", "--phase", "2")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A project on which nothing was sampled yet."""
    folder = tmp_path_factory.mktemp("world")
    make_world(folder, n_images=N_IMAGES)
    return folder


@pytest.fixture(scope="module")
def sampled(world, tmp_path_factory) -> Path:
    """The same after phase 1."""
    folder = Path(shutil.copytree(world, tmp_path_factory.mktemp("sampled") / "p"))
    ok(*PHASE_1, "--project", folder)
    return folder


@pytest.fixture
def project(world, tmp_path, monkeypatch) -> Settings:
    """A copy of the project, where commands are run."""
    return at_home(world, tmp_path, monkeypatch)


@pytest.fixture
def rated(sampled, tmp_path, monkeypatch) -> Settings:
    """A copy after phase 1, all of it rated five times: the smaller the numbers, the more alike."""
    settings = at_home(sampled, tmp_path, monkeypatch)
    rate(settings, Likeness.STS, lambda first, second: 4 - first / N_CAPTIONS)
    rate(settings, Likeness.SIS, lambda first, second: 3 - min(first, second) / N_IMAGES)
    return settings


def at_home(folder: Path, tmp_path: Path, monkeypatch) -> Settings:
    copy = Path(shutil.copytree(folder, tmp_path / "p"))
    monkeypatch.chdir(copy)
    return project_settings(copy)


def of(samples: pd.DataFrame, method: SamplingMethod) -> pd.DataFrame:
    return samples[samples["method"] == METHODS.index(method)]


def image_of(settings: Settings) -> dict[int, int]:
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        return {caption.id: caption.image_id for caption in item_store.captions(session, dataset.id)}


def test_phase_1_samples_images_by_captions_captions_by_images_and_co_captions(project):
    """Two encoders of captions, one of images, each named with what it chose; five pairs of five captions."""
    counts = ok(*PHASE_1, "--json").json["counts"]
    samples, owners = samples_of(project), image_of(project)

    by_method = Counter(METHODS[place].value for place in samples["method"])
    assert set(by_method) == {"c2c_isim", "c2c_cocaption", "i2i_csim"}
    assert set(of(samples, SamplingMethod.I2I_CSIM)["encoder"]) == {"near", "far"}
    assert set(of(samples, SamplingMethod.C2C_ISIM)["encoder"]) == {"near"}
    co_captions = of(samples, SamplingMethod.C2C_COCAPTION)
    assert len(co_captions) == N_CAPTIONS
    assert all(owners[one] == owners[other] for one, other in co_captions[["first", "second"]].values)
    by_images = of(samples, SamplingMethod.C2C_ISIM)
    assert all(owners[one] != owners[other] for one, other in by_images[["first", "second"]].values)
    assert counts["phase"] == 1 and counts["new_samples"] == counts["samples"] == len(samples)
    assert [of["encoder"] for of in counts["encoders"]] == ["near", "far", "near"]
    assert counts["methods"]["c2c_cocaption"]["cxc_val"] == 5 * N_IMAGES


def test_only_what_was_sampled_is_named_as_the_next_to_rate(project):
    """Without an encoder of captions there are no pairs of images."""
    told = ok("propose", "--scheme", "crisscross", "--text-encoder", "none", "--image-encoder", "near").out

    assert "next: `mitl rate publish --task sts --sandbox`\n" in told


def test_neighbours_bound_what_each_image_chooses(project):
    """Of two neighbours no image chooses more than two."""
    ok(*PHASE_1, "--neighbours", "2")
    samples = samples_of(project)

    for encoder in ("near", "far"):
        chosen = of(samples, SamplingMethod.I2I_CSIM)
        assert chosen[chosen["encoder"] == encoder].groupby("first").size().max() <= 2
    assert samples["rank"].max() == 2


def test_twice_changes_nothing(sampled, tmp_path, monkeypatch):
    """The same call, or the bare one, says that there is nothing to do, and the database stays as it is."""
    settings = at_home(sampled, tmp_path, monkeypatch)
    before = samples_of(settings)

    again, bare = ok(*PHASE_1, "--json").json, ok("propose", "--scheme", "crisscross", "--json").json

    assert again["status"] == bare["status"] == "nothing_to_do"
    assert again["counts"]["new_samples"] == bare["counts"]["new_samples"] == 0
    assert samples_of(settings).equals(before)


def test_what_was_sampled_is_the_next_thing_to_ask(sampled, tmp_path, monkeypatch):
    """Where nothing was proposed, `status` names the command that asks for ratings, and the others name `status`."""
    at_home(sampled, tmp_path, monkeypatch)

    assert ok("status").out.endswith("next: mitl rate publish --sandbox\n")
    for words in (("review",), ("simulate",), ("harvest",)):
        assert ok(*words).out.endswith("next: mitl status, which says what comes first\n"), words


def test_a_run_that_was_killed_goes_on_from_what_it_sampled(project, monkeypatch):
    """What was searched is kept as a file; the next run stores it without searching again."""

    def killed(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stage.similarity_store, "add_samples", killed)
        assert mitl(*PHASE_1).status != 0
    assert samples_of(project).empty
    monkeypatch.setattr(stage, "_sampled", killed)

    assert ok(*PHASE_1, "--json").json["counts"]["new_samples"] > 0


def test_a_kept_file_that_is_damaged_is_made_again(project):
    """A file cut off, or with a number or the name of a type changed, is no reason to stop."""
    ok(*PHASE_1)
    before = samples_of(project)
    (kept,) = (project.runs / FOLDER).glob("*.parquet")
    whole = kept.read_bytes()
    column = pq.read_metadata(kept).row_group(0).column(1)
    place = column.dictionary_page_offset + column.total_compressed_size // 3
    changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]

    table, spoiled = pq.read_table(kept), io.BytesIO()
    said = table.schema.metadata[b"pandas"].replace(b'"numpy_type": "str"', b'"numpy_type": "st5"')
    pq.write_table(table.replace_schema_metadata({b"pandas": said}), spoiled)

    for damaged in (whole[:100], changed, spoiled.getvalue()):
        kept.write_bytes(damaged)
        assert ok(*PHASE_1, "--json").json["status"] == "nothing_to_do"
        assert samples_of(project).equals(before)
        assert kept.read_bytes() == whole


def test_another_encoder_adds_and_another_seed_draws_no_co_captions_again(sampled, tmp_path, monkeypatch):
    """Co-captions are drawn once for an image."""
    settings = at_home(sampled, tmp_path, monkeypatch)
    before = samples_of(settings)
    given = ("--text-encoder", "near-captions.npz", "--image-encoder", "none", "--seed", "7")

    ok("propose", "--scheme", "crisscross", *given)

    after = samples_of(settings)
    assert after.iloc[: len(before)].equals(before.astype(after.dtypes))
    added = after.iloc[len(before) :]
    assert set(added["encoder"]) == {"near-captions.npz"}
    same = after[after["encoder"] == "near"]
    assert len(added) == len(of(same, SamplingMethod.I2I_CSIM)), "the same vectors choose the same"


def test_files_of_one_side_are_encoders(project):
    """A file of captions' embeddings needs none of images."""
    given = ("--text-encoder", "near-captions.npz", "--image-encoder", "near-images.npz")

    ok("propose", "--scheme", "crisscross", *given)

    samples = samples_of(project)
    assert set(of(samples, SamplingMethod.C2C_ISIM)["encoder"]) == {"near-images.npz"}
    assert set(of(samples, SamplingMethod.I2I_CSIM)["encoder"]) == {"near-captions.npz"}


def test_phase_2_waits_for_phase_1_in_words(project):
    """Before phase 1 it says so; after it, how many pairs have how many ratings and what to run."""
    assert "run `mitl propose --scheme crisscross --phase 1` first" in mitl(*PHASE_2).error
    ok(*PHASE_1)

    refused = mitl(*PHASE_2)

    assert refused.status == 1
    samples = samples_of(project)
    n = of(samples, SamplingMethod.C2C_ISIM)["pair"].nunique()
    assert f"of {n:,} STS pairs {n:,} have 0 of 5" in refused.error
    assert (
        "run `mitl rate publish --task sts --sandbox` and `mitl rate publish --task sis --sandbox`, then"
        in refused.error
    )


def test_ratings_that_are_short_or_do_not_count_are_named(sampled, tmp_path, monkeypatch):
    """A pair with three ratings, and a whole task whose submissions were dropped."""
    settings = at_home(sampled, tmp_path, monkeypatch)
    short = int(of(samples_of(settings), SamplingMethod.I2I_CSIM)["pair"].iloc[0])
    rate(settings, Likeness.SIS, lambda first, second: 3, fewer={short: 3})
    rate(settings, Likeness.STS, lambda first, second: 3, decision=Decision.DROP)

    error = mitl(*PHASE_2).error
    waiting = ok("propose", "--scheme", "crisscross", "--json").json

    pairs = of(samples_of(settings), SamplingMethod.I2I_CSIM)["pair"].nunique()
    assert f"1 have 3 of 5, {pairs - 1:,} have 5 or more of 5" in error
    assert (
        "run `mitl rate publish --task sts --sandbox` and `mitl rate publish --task sis --sandbox`, then `mitl harvest`"
        in error
    )
    assert waiting["counts"]["ratings"]["i2i_csim"]["complete"] == pairs - 1
    assert waiting["counts"]["ratings"]["c2c_isim"]["by_ratings"] == {
        "0": of(samples_of(settings), SamplingMethod.C2C_ISIM)["pair"].nunique()
    }
    assert ok(*PHASE_2, "--min-ratings", "0", "--json").json["counts"]["new_samples"] > N_CAPTIONS


def test_work_that_waits_for_a_person_comes_first(sampled, tmp_path, monkeypatch):
    """Decided, it may bring the ratings that lack."""
    settings = at_home(sampled, tmp_path, monkeypatch)
    rate(settings, Likeness.STS, lambda first, second: 3, decision=Decision.QUEUED)

    assert "run `mitl review` for what waits for a person, then `mitl rate" in mitl(*PHASE_2).error


def test_phase_2_takes_the_best_rated_and_all_originals(rated):
    """Half by captions' ratings and half by images', none of an image's own captions, then every original."""
    counts = ok("propose", "--scheme", "crisscross", "--candidates", "20", "--json").json["counts"]
    samples, owners = samples_of(rated), image_of(rated)
    across, originals = of(samples, SamplingMethod.C2I_INTRASIM), of(samples, SamplingMethod.C2I_ORIGINAL)

    assert counts["phase"] == 2
    assert Counter(across["encoder"]) == {BY_TEXTS: 10, BY_IMAGES: 10}
    assert all(owners[caption] != image for image, caption in across[["first", "second"]].values)
    assert sorted(map(tuple, originals[["second", "first"]].values)) == sorted(owners.items())
    # A pair of captions or images was rated before, and whoever is in is rated no worse than who is not.
    phase_1 = of(samples, SamplingMethod.I2I_CSIM)
    known = set(map(tuple, phase_1[["first", "second"]].values))
    by_images = across[across["encoder"] == BY_IMAGES]
    assert all((image, owners[caption]) in known for image, caption in by_images[["first", "second"]].values)
    scores = [
        3 - min(image, owners[caption]) / N_IMAGES for image, caption in by_images[["first", "second"]].values
    ]
    assert by_images["similarity"].tolist() == pytest.approx(scores)
    assert scores == sorted(scores, reverse=True)


def test_phase_2_twice_changes_nothing_and_more_candidates_add(rated):
    """The candidates that are there count among those asked for."""
    ok(*PHASE_2, "--candidates", "10")
    again = ok(*PHASE_2, "--candidates", "10", "--json").json
    more = ok(*PHASE_2, "--candidates", "16", "--json").json

    assert again["status"] == "nothing_to_do"
    assert more["counts"]["new_samples"] == 6
    assert more["counts"]["methods"]["c2i_intrasim"]["rows"] == 16


def test_phase_2_says_when_the_rated_pairs_run_out(rated):
    """A million candidates are not to be had of twelve images."""
    assert "of the 1,000,000 candidates asked for" in ok(*PHASE_2, "--candidates", "1000000").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--scheme", "crisscross", "--top-k", "3"), "--top-k is for --scheme top-k"),
        (("--scheme", "crisscross", "--annotator", "near"), "--annotator is for --scheme top-k"),
        (("--scheme", "crisscross", "--estimate"), "--estimate is for --scheme top-k"),
        (("--candidates", "0"), "--candidates is for --scheme crisscross"),
        (("--text-encoder", "near"), "--text-encoder is for --scheme crisscross"),
        (("--sandbox",), "--sandbox is for --scheme crisscross"),
        (("--estimate", "--phase", "1"), "--phase is for --scheme crisscross"),
        (("--scheme", "crisscross", "--phase", "1", "--candidates", "3"), "--candidates is for phase 2"),
        (("--scheme", "crisscross", "--phase", "2", "--text-encoder", "a"), "--text-encoder is for phase 1"),
        (("--scheme", "crisscross", "--neighbours", "3", "--live"), "--neighbours is for phase 1 and --live"),
    ],
)
def test_options_that_mean_nothing_are_refused(project, words, message):
    """One line, exit status 2, nothing stored."""
    refused = mitl("propose", *words)

    assert refused.status == 2
    assert message in refused.error
    assert samples_of(project).empty


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--text-encoder", "nobody"), "no encoder of captions called 'nobody'; known: sentences, words"),
        (("--text-encoder", "none.npz"), "there is no file of embeddings"),
        (("--text-encoder", BACKBONE), "reads images, but one of captions is wanted"),
        (("--text-encoder", "near-images.npz"), "lacks 48 of 60 captions"),
        (("--text-encoder", "near", "--text-encoder", "near"), "two encoders of captions are called 'near'"),
        (("--text-encoder", "near", "--text-encoder", "none"), "name it alone"),
        (("--text-encoder", f"{'x' * 200}.npz"), "has a name of 204 characters"),
    ],
)
def test_encoders_that_cannot_work_are_refused(project, words, message):
    """One line, exit status 1, nothing stored."""
    shutil.copy("near-captions.npz", f"{'x' * 200}.npz")

    refused = mitl("propose", "--scheme", "crisscross", *words, "--image-encoder", "near")

    assert refused.status == 1
    assert message in refused.error
    assert samples_of(project).empty


def test_pictures_that_are_gone_are_named_with_what_to_do(project):
    """An encoder of pictures needs all of them, and images can be left out."""
    for module in KNOWN[BACKBONE].modules:
        pytest.importorskip(module, reason="the extras torch and backbone are not installed")
    shutil.rmtree(project.project / "dataset" / "images")

    error = mitl(*PHASE_1[:-1], BACKBONE).error

    assert "looks at pictures, but 12 of 12 images have none" in error
    assert "leave out caption pairs by images with --image-encoder none" in error


def test_what_is_installed_is_the_default(project):
    """For the generated world our small networks look at pictures; nothing needs to be named."""
    for name in (SENTENCES, WORDS):
        for module in KNOWN[name].modules:
            pytest.importorskip(module, reason="the extras torch and pivot are not installed")

    printed = ok("propose", "--scheme", "crisscross").out

    assert set(samples_of(project)["encoder"]) == {"", SENTENCES, WORDS, "clip-mini"}
    assert "a trained sentence encoder, all-MiniLM-L6-v2" in printed
    assert "CxC's share, val" in printed
