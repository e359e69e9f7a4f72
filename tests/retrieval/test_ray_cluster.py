"""`mitl propose --engine ray` on a cluster of several machines, which are processes of this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import clear_environment, fails, ok, use_file_annotators
from encoding_kit import Hashing, Jealous, JealousRecipe, captions

from mitl.errors import RetrievalError
from mitl.retrieval.ray_engine import RayEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra mitl[ray] is not installed"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes of one core each, each with processes of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        from ray.cluster_utils import Cluster

        size = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=size)
        try:
            for _ in range(2):
                made.add_node(num_cpus=1, object_store_memory=80 << 20)
            yield made
        finally:
            made.shutdown()


def test_a_cluster_proposes_the_same_bytes_as_one_machine(cluster, tmp_path, monkeypatch):
    """The ranking files are equal, and a run by one engine is known to the other."""
    clear_environment(monkeypatch)
    asked = ("propose", "--image-queries", "9", "--caption-queries", "12", "--depth", "10")
    joined = ("--engine", "ray", "--ray-address", cluster.address)
    files = {}
    for name, options in (("local", ()), ("ray", joined)):
        folder = tmp_path / name
        folder.mkdir()
        with chdir(folder):
            ok("init", "--dataset", "scenes", "--n-images", "40")
            use_file_annotators(Path())
            ok(*asked, *options)
            files[name] = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.parquet")}
            assert ok(*asked, "--json").json["status"] == "nothing_to_do"

    assert len(files["local"]) == 4
    assert files["ray"] == files["local"]


def test_encoding_survives_the_loss_of_a_machine(cluster):
    """A node goes away with the chunks that it was given; the others encode them."""
    victim = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    network, texts = Jealous("jealous", Path("nowhere")), captions(24)
    chunks = [(number, texts[3 * number : 3 * number + 3]) for number in range(8)]
    recipes = {"jealous": JealousRecipe("jealous", {"threads": 1}, Path("nowhere"))}

    found = {}
    with RayEngine(recipes, address=cluster.address) as engine:
        for number, encoded in engine.encode(network, "caption", chunks):
            found[number] = encoded
            if len(found) == 1:
                cluster.remove_node(victim, allow_graceful=False)

    rows = np.concatenate([found[number].arrays["embedding"] for number in range(8)])
    np.testing.assert_array_equal(rows, Hashing().encode_captions(texts).arrays["embedding"])
    assert network.calls == 0


def test_workers_of_another_version_are_refused(cluster, monkeypatch):
    """Results of two versions are never mixed."""
    monkeypatch.setattr("mitl.retrieval.ray_cluster.version", lambda name: "9.9")

    with pytest.raises(RetrievalError, match=r"run mitl .*, but this is 9\.9"):
        RayEngine({}, address=cluster.address).__enter__()


def test_an_unreachable_cluster_is_one_clear_line(tmp_path, monkeypatch):
    """On the command line as well, before anything is computed."""
    clear_environment(monkeypatch)
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "40")
    use_file_annotators(Path())

    message = fails(1, "propose", "--engine", "ray", "--ray-address", "127.0.0.1:1")

    assert message.startswith("no ray cluster can be reached at '127.0.0.1:1' (")
    assert not (tmp_path / "runs").exists()
