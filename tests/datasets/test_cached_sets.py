"""Data sets by their name on the hub: what the ``datasets`` library prepared on this machine, in its own layout."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.datasets.finding import cached_folder
from mitl.datasets.table import TableReading, read_table
from mitl.errors import DatasetError, UsageError
from mitl.stages.setup.loading import kind_or_path

datasets = pytest.importorskip(
    "datasets", minversion="5", reason="the cache is written by the library itself"
)


def prepare(cache, repo, config="default", *, of=1, splits=("train", "test")):
    """Let the library prepare a repository's table as `load_dataset` does, without the network."""
    from datasets.packaged_modules.csv.csv import Csv

    source = cache / "source.csv"
    rows = "".join(f"{number}.png,picture {number} of {config}\n" for number in range(6))
    source.write_text(f"image,caption\n{rows}")
    builder = Csv(
        cache_dir=str(cache),
        dataset_name=repo.rpartition("/")[2],
        config_name=config,
        hash=f"{config}0",
        data_files={split: [str(source)] * of for split in splits},
    )
    if "/" in repo:  # given at once, the library would want the files to lie on the hub
        builder.repo_id = repo
        builder._cache_dir = builder._build_cache_dir()
        builder._output_dir = builder._cache_dir
    builder.download_and_prepare(num_proc=of if of > 1 else None)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, named as the library lets a user name it."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def read(name, split=None):
    kind, (folder,), called = kind_or_path(name, ())
    assert kind == "table"
    return called, read_table(folder, reading=TableReading(split=split))


@pytest.mark.parametrize("repo", ["someone/PhotoChat", "someone/My_Captions-2", "plain"])
def test_a_name_is_what_the_library_prepared(cache, repo):
    """Whatever its capitals; the data set is called by its name, and the split is named."""
    prepare(cache, repo)
    with pytest.raises(UsageError, match="holds the splits test, train; name one with --split"):
        read(repo)

    called, data = read(repo, "test")

    assert called == repo.rpartition("/")[2]
    assert [caption.text for caption in data.captions] == [f"picture {n} of default" for n in range(6)]


def test_a_split_in_several_files_is_read_whole(cache, monkeypatch):
    """In order; one that lost a file is refused."""
    prepare(cache, "a/b", of=2, splits=("train",))
    folder = cached_folder("a/b")
    parts = sorted(folder.glob("*.arrow"))
    assert len(parts) == 2
    assert len(read("a/b")[1].captions) == 12
    parts[1].unlink()
    with pytest.raises(DatasetError, match=r"lacks files of the split .* \(there: 1 of 2 of 'b-train'\)"):
        read("a/b")


def test_configurations_are_named(cache):
    """Several want one; the newest version of one is taken."""
    prepare(cache, "a/b", "one")
    prepare(cache, "a/b", "two")
    with pytest.raises(UsageError, match=r"configurations one-\w+, two-\w+; name one, as a/b:one-"):
        read("a/b")
    with pytest.raises(UsageError, match=r"with the configurations one-.*; name one, as a/b:one-"):
        read("a/b:three")
    assert read("a/b:two", "train")[1].captions[0].text == "picture 0 of two"


def test_a_configuration_is_named_though_another_begins_as_it_does(tmp_path):
    """Of en and en-us each is found by its own name, whatever the library made of them."""
    for config in ("en", "en-us"):
        folder = tmp_path / "a___b" / config / "0.0.0" / "hash"
        folder.mkdir(parents=True)
        for name in ("dataset_info.json", "b-test.arrow"):
            (folder / name).touch()
    for config in ("en", "en-us"):
        found = cached_folder(f"a/b:{config}", {"HF_DATASETS_CACHE": str(tmp_path)})
        assert found is not None and found.parents[1].name == config


def test_what_is_not_there_is_one_line(cache):
    """Neither a path nor a name; a cache entry without its list of splits."""
    with pytest.raises(UsageError, match=r"there is no data set 'nobody/nothing'.*load_dataset"):
        read("nobody/nothing")
    assert cached_folder("../etc") is None and cached_folder("a/../b") is None
    prepare(cache, "a/b")
    info = next(cache.rglob("dataset_info.json"))
    info.write_text(json.dumps({"splits": {}}))
    with pytest.raises(DatasetError, match="names no splits"):
        read("a/b", "train")


def test_the_cache_is_where_the_library_looks(tmp_path, monkeypatch):
    """HF_HOME and XDG_CACHE_HOME besides."""
    prepare(tmp_path / "hf" / "datasets", "a/b") if (tmp_path / "hf" / "datasets").mkdir(
        parents=True
    ) is None else None
    assert cached_folder("a/b", {"HF_HOME": str(tmp_path / "hf")}) is not None
    (tmp_path / "xdg").mkdir()
    (tmp_path / "hf").rename(tmp_path / "xdg" / "huggingface")
    assert cached_folder("a/b", {"XDG_CACHE_HOME": str(tmp_path / "xdg")}) is not None
    assert cached_folder("a/b", {"HF_HOME": str(tmp_path / "nowhere")}) is None


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True))
def test_names_are_written_as_the_library_writes_them(tmp_path_factory, name):
    """Capitals above all."""
    from datasets.naming import camelcase_to_snakecase

    home = tmp_path_factory.mktemp("named")
    folder = home / "datasets" / f"o___{camelcase_to_snakecase(name)}" / "default" / "0.0.0" / "x"
    folder.mkdir(parents=True)
    for file in ("dataset_info.json", "x-train.arrow"):
        (folder / file).write_text("")

    assert cached_folder(f"o/{name}", {"HF_HOME": str(home)}) == folder
