"""A release is read by what researchers already use: mlcroissant, Hugging Face datasets, pandas."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace

import pytest
from rating_kit import rated_world
from release_kit import audited_world, records, world

from mitl.judgements.aggregators import Aggregator
from mitl.positives.merging import MergeRules
from mitl.positives.pair_answers import judgement_frame, pair_answers
from mitl.positives.rating_release import write_ratings
from mitl.positives.release import write_release
from mitl.positives.release_input import ReleaseCard
from mitl.positives.verifying import verify_release
from mitl.records import IdKind, Label, Pair

KINDS = pytest.mark.parametrize("kind", list(IdKind))
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


@pytest.fixture(autouse=True)
def _no_stream_kept():
    """mlcroissant's logger keeps this test's standard error, and would close it when logging is set up again."""
    yield
    if "absl.logging" in sys.modules:
        sys.modules["absl.logging"].get_absl_handler().python_handler.setStream(sys.__stderr__)


def by_model(kind, **changes):
    """A release whose answers a model took together, so that it has every table."""
    rules = MergeRules(aggregator=Aggregator.ORDINAL)
    answers = pair_answers(judgement_frame(records()[0]), rules)
    return world(kind, rules=rules, posterior=answers.posterior, **changes)


def text(value):
    """mlcroissant gives texts as bytes."""
    return value.decode() if isinstance(value, bytes) else value


@KINDS
def test_mlcroissant_finds_nothing_wrong_and_reads_every_row(tmp_path, kind, monkeypatch):
    """The description validates, and the records that it describes are those of the tables."""
    croissant = pytest.importorskip("mlcroissant")
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("CROISSANT_CACHE", str(tmp_path / "cache"))
    card = ReleaseCard(license="CC-BY-4.0", citation="none yet", date_published="2026-11-20")
    folder = tmp_path / "release"
    write_release(folder, by_model(kind, card=card))

    found = croissant.Dataset(jsonld=str(folder / "croissant.json"))

    assert not found.metadata.ctx.issues.errors
    assert not found.metadata.ctx.issues.warnings
    assert found.metadata.ctx.is_v1_1()
    for name in ("positives", "judgements", "posteriors"):
        table = pandas.read_parquet(folder / f"{name}.parquet")
        rows = list(found.records(name))
        assert len(rows) == len(table) > 0
        ids = [(text(row[f"{name}/image_id"]), text(row[f"{name}/caption_id"])) for row in rows]
        assert ids == list(zip(table["image_id"].tolist(), table["caption_id"].tolist(), strict=True))


@KINDS
def test_mlcroissant_reads_a_certified_release_with_machine_labels(tmp_path, kind, monkeypatch):
    """The tables of the audit and the columns of the machine are described as the others are."""
    croissant = pytest.importorskip("mlcroissant")
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("CROISSANT_CACHE", str(tmp_path / "cache"))
    card = ReleaseCard(license="CC-BY-4.0", citation="none yet", date_published="2026-11-20")
    folder = tmp_path / "release"
    write_release(
        folder, audited_world(kind, card=card, machine={Pair(1, 28): Label.YES, Pair(4, 1): Label.NO})
    )

    found = croissant.Dataset(jsonld=str(folder / "croissant.json"))

    assert not found.metadata.ctx.issues.errors and not found.metadata.ctx.issues.warnings
    for name in ("positives", "negatives", "audit", "audit_answers", "audit_strata"):
        assert len(list(found.records(name))) == len(pandas.read_parquet(folder / f"{name}.parquet")) > 0
    assert verify_release(folder).differences == ()


@KINDS
def test_datasets_loads_the_folder(tmp_path, kind, monkeypatch):
    """By its README's configurations, without a script and without network."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        datasets = pytest.importorskip("datasets", minversion="5")
        pandas = pytest.importorskip("pandas")
        folder = tmp_path / "release"
        write_release(folder, by_model(kind))
        for name in ("positives", "judgements", "posteriors"):
            loaded = datasets.load_dataset(str(folder), name, cache_dir=str(tmp_path / "cache"))["train"]

            expected = pandas.read_parquet(folder / f"{name}.parquet")
            assert loaded.column_names == list(expected.columns)
            assert loaded["image_id"][:] == expected["image_id"].tolist()
            if "label" in loaded.column_names:
                assert loaded["label"][:] == [None if pandas.isna(x) else x for x in expected["label"]]


def test_the_readme_names_no_table_without_rows(tmp_path):
    """``datasets`` fails on it, as on the answers of a release of ratings and originals alone."""
    data = world(IdKind.INTEGER)
    nobody = replace(data, judgements=data.judgements.iloc[:0])

    told = (write_release(tmp_path / "release", nobody).folder / "README.md").read_text()

    assert "config_name: positives" in told and "config_name: judgements" not in told


def test_datasets_loads_a_release_of_ratings(tmp_path, monkeypatch):
    """Each file of scores by its task, for their columns differ."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        datasets = pytest.importorskip("datasets", minversion="5")
        release = write_ratings(tmp_path / "r", rated_world()).folder
        folder, cache = str(release), str(tmp_path / "cache")
        names = datasets.get_dataset_config_names(folder)
        rows = {
            name: datasets.load_dataset(folder, name, cache_dir=cache)["train"].num_rows for name in names
        }

    scores = {path.name: len(path.read_text().splitlines()) - 1 for path in release.glob("s*_*.csv")}
    assert {f"{name}_test.csv": count for name, count in rows.items()} == scores


def test_mlcroissant_finds_nothing_wrong_with_a_release_of_ratings(tmp_path, monkeypatch):
    """And gives every rating."""
    croissant = pytest.importorskip("mlcroissant")
    monkeypatch.setenv("CROISSANT_CACHE", str(tmp_path / "cache"))
    card = ReleaseCard(license="CC-BY-4.0", citation="none yet", date_published="2026-11-20")
    written = write_ratings(tmp_path / "r", rated_world(card=card))

    found = croissant.Dataset(jsonld=str(written.folder / "croissant.json"))

    assert not found.metadata.ctx.issues.errors and not found.metadata.ctx.issues.warnings
    assert len(list(found.records("ratings"))) == written.summary.counts["ratings"]
    described = json.loads((written.folder / "croissant.json").read_text())
    files = {path.name for path in written.folder.iterdir()} - {
        "manifest.json",
        "croissant.json",
        "README.md",
    }
    assert {file["@id"] for file in described["distribution"]} == files
