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
from chat_kit import chat_server
from cli_kit import fails, ok, use_file_annotators
from encoding_kit import Hashing, Jealous, JealousRecipe, captions
from PIL import Image

from mitl.errors import RetrievalError
from mitl.records import CaptionItem, ImageItem
from mitl.retrieval.engines import AnnotatorRecipe
from mitl.retrieval.pair_scores import Unit
from mitl.retrieval.ray_engine import RayEngine

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra mitl[ray] is not installed"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one core each, with processes of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        from ray.cluster_utils import Cluster

        size = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=size)
        try:
            made.add_node(num_cpus=1, object_store_memory=80 << 20)
            yield made
        finally:
            made.shutdown()


@pytest.mark.thorough
def test_a_cluster_proposes_the_same_bytes_as_one_machine(cluster, tmp_path):
    """The ranking files are equal, and a run by one engine is known to the other."""
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


@pytest.mark.thorough
def test_a_model_behind_a_server_judges_for_workers_as_for_one_machine(cluster, tmp_path):
    """Each worker asks the server itself; the scores are the same, and no pair is asked for twice."""
    texts = [CaptionItem(place, str(place), 1, f"caption {place}") for place in range(1, 31)]
    images = []
    for place, colour in enumerate(("red", "green", "blue", "white"), 1):
        images.append(ImageItem(place, colour, path=tmp_path / f"{colour}.png"))
        Image.new("RGB", (40 * place, 90), colour).save(tmp_path / f"{colour}.png")
    with chat_server(lambda jpeg, caption: [len(jpeg) % 7 / 14, int(caption[8:]) / 100, 0, 0.1]) as server:
        recipe = AnnotatorRecipe("seer", {"chat": server.url, "model": "seer-8b"})
        seer = recipe.build()
        sides = seer.encode_images(images), seer.encode_captions(texts)
        rows = np.divmod(np.arange(len(images) * len(texts)), len(texts))
        units = [Unit(n, *(side[20 * n : 20 * n + 20] for side in rows)) for n in range(6)]
        with RayEngine({"seer": recipe}, address=cluster.address) as engine:
            found = {unit.number: unit.scores for unit in engine.score(seer, *sides, units)}
        assert len(server.bodies) == 2 * len(rows[0])
        assert np.concatenate([found[n] for n in range(6)]).tobytes() == seer.scores(*sides, *rows).tobytes()


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_workers_of_another_version_are_refused(cluster, monkeypatch):
    """Results of two versions are never mixed."""
    monkeypatch.setattr("mitl.retrieval.ray_cluster.version", lambda name: "9.9")

    with pytest.raises(RetrievalError, match=r"run mitl .*, but this is 9\.9"):
        RayEngine({}, address=cluster.address).__enter__()


def test_an_unreachable_cluster_is_one_clear_line(tmp_path, monkeypatch):
    """On the command line as well, before anything is computed."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "40")
    use_file_annotators(Path())

    message = fails(1, "propose", "--engine", "ray", "--ray-address", "127.0.0.1:1")

    assert message.startswith("no ray cluster can be reached at '127.0.0.1:1' (")
    assert not (tmp_path / "runs").exists()
