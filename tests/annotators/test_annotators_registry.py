"""Names of machine annotators, and what is said when one cannot be built."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from annotators import base, registry
from annotators.base import Annotator
from annotators.catalog import BEGINNERS
from annotators.catalog import NETWORKS as ENTRIES
from annotators.registry import describe
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind

MINIS = ["clip-mini", "pcme-mini", "pvse-mini", "vilt-mini", "vsrn-mini"]
NETWORKS = ["clip", "pcme", "pvse", "vilt", "vsrn"]


def test_names_are_the_networks_where_no_package_adds_any(monkeypatch):
    """The names that say by themselves what is built are the five networks and their small twins, sorted."""
    monkeypatch.setattr(registry, "entry_points", lambda group: ())

    assert registry.names() == sorted([*NETWORKS, *MINIS])


def test_listing_imports_neither_torch_nor_numpy():
    """Listing and describing the names leaves every heavy module alone."""
    code = (
        "import sys; from annotators import registry; registry.names(); registry.describe();"
        "print([m for m in ('torch', 'numpy', 'sklearn', 'transformers', 'pyarrow', 'PIL') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_every_known_name_is_described():
    """The description covers the networks with what to download, the minis, the pivot form and files."""
    lines = {line.name: line for line in describe()}

    assert {*NETWORKS, *MINIS, *BEGINNERS, registry.PIVOT_FORM, "<any name>"} <= lines.keys()
    for network in NETWORKS:
        text = "\n".join(lines[network].download)
        assert "weights: " in text and f"[annotators.{network}]: weights = " in text


def test_ready_is_what_could_propose_as_things_are(tmp_path):
    """A network without its weights is not ready, nor a form without settings; files that are named must be there."""
    pytest.importorskip("torch")
    (tmp_path / "captions.csv").write_text("")
    configured = {
        "pvse": {"weights": "there.pth", "vocabulary": "v.pkl"},
        "mine": {"network": "vsrn", "weights": ["a.tar", "b.tar"], "vocabulary": "there.pth"},
        "half": {"embeddings": {"images": "captions.csv"}},
        "pivot-x-tfidf": {"captions": "captions.csv"},
        "theirs": {"embeddings": {"images": "i.npy", "captions": "captions.csv"}},
        "clip": {"weights": "there.pth", "bpe": "merges.gz"},
        "clip-mini": {"weights": "tuned.safetensors"},
    }
    for name in ("there.pth", "a.tar"):
        (tmp_path / name).write_bytes(b"")
    plain = {line.name: line for line in describe()}
    own = {line.name: line for line in describe(configured, tmp_path)}

    assert not any(plain[network].ready for network in NETWORKS)
    assert all(plain[mini].ready for mini in MINIS)
    assert not plain["<any name>"].ready and plain["clip"].missing == ("its weights",)
    assert own["pvse"].missing == ("the file v.pkl",)
    assert own["mine"].missing == ("the setting features", "the file b.tar")
    assert own["half"].missing == ("embeddings of captions",)
    assert own["pivot-x-tfidf"].ready
    assert own["theirs"].missing == ("the file i.npy",)
    assert own["clip"].missing == ("the file merges.gz",)
    assert own["clip-mini"].missing == ("the file tuned.safetensors",)
    (tmp_path / "v.pkl").write_bytes(b"")
    assert {line.name: line for line in describe(configured, tmp_path)}["pvse"].ready


@pytest.mark.parametrize("network", NETWORKS)
def test_the_settings_that_are_shown_are_read(network):
    """The lines of mitl.toml that a newcomer is told to write are TOML, and their keys are the network's own."""
    pytest.importorskip("torch")
    config = tomllib.loads("\n".join(ENTRIES[network].settings))

    with pytest.raises(AnnotatorError, match=r"'weights' of annotator .* names .*, which is missing"):
        registry.build(network, config, folder=Path("/nowhere"))


def test_an_unknown_name_lists_the_known_ones():
    """A name with a typing error is answered with all names."""
    with pytest.raises(AnnotatorError, match=r"^no annotator called 'clop'; known: clip, clip-mini, pcme, "):
        registry.build("clop", {})


@pytest.mark.parametrize(
    "name", ["../../evil", "/evil", "", "..", ".evil", "a/b", "a\\b", "a b", "café", "x\n"]
)
@pytest.mark.parametrize("config", [{}, {"rankings": "runs"}])
def test_a_name_never_leads_out_of_a_folder(name, config):
    """Ranking files are called after their annotator, so only plain names are names, with or without files."""
    with pytest.raises(
        AnnotatorError, match=r"^an annotator cannot be called .*; use letters, digits"
    ) as caught:
        registry.build(name, config)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_without_weights_says_what_to_download(network):
    """One line: which files, from where, and what to write into mitl.toml, under other names too."""
    first = ENTRIES[network].settings[0].split('"')[1]

    for name, config in ((network, {}), ("mine-2", {"network": network})):
        with pytest.raises(
            AnnotatorError, match=f"^annotator '{name}' needs its weights; download "
        ) as caught:
            registry.build(name, config)

        message = str(caught.value)
        assert first in message and "\n" not in message
        assert f"then write under [annotators.{name}] of mitl.toml: " in message
        assert (f'network = "{network}"' in message) == (name != network)


@pytest.mark.parametrize("value", ["pvze", "pvse-mini", 3, ["pvse"]])
def test_the_setting_network_is_one_of_five(value):
    """Another value is answered with the five."""
    with pytest.raises(
        AnnotatorError, match=r"^'network' of annotator 'mine' is .*; it should be one of pvse, vsrn"
    ):
        registry.build("mine", {"network": value, "weights": "x"})


@pytest.mark.parametrize("key", ["text_model", "transformers"])
def test_a_setting_that_makes_another_annotator_does_not_go_with_network(key):
    """Two settings that each say what is built contradict each other."""
    with pytest.raises(AnnotatorError, match=f"has both 'network' and '{key}'"):
        registry.build("mine", {"network": "clip", key: "x"})


def test_the_network_of_a_name():
    """By its setting, else by its name; embeddings from files may say whose they are."""
    assert registry.network_of("pvse") == "pvse"
    assert registry.network_of("pvse", {"network": "clip"}) == "clip"
    assert registry.network_of("mine", {"network": "vsrn"}) == "vsrn"
    assert registry.network_of("mine") is None
    assert registry.network_of("pvse-mini") is None


@pytest.mark.parametrize("name", ["pivot-tfidf", "pivot--lsa", "pivot-Some-bert", "pivot-x"])
def test_a_name_that_only_looks_like_a_pivot_is_unknown(name):
    """The pivot form needs a captioner and a known text model."""
    assert registry.pivot_parts(name) is None
    with pytest.raises(AnnotatorError, match="no annotator called"):
        registry.build(name, {})


def test_a_captioner_may_hold_dashes_and_dots():
    """Only the last part of a pivot's name is the text model."""
    assert registry.pivot_parts("pivot-BERT_VR-rerank_0.4-lsa") == ("BERT_VR-rerank_0.4", "lsa")


def test_an_unknown_setting_is_refused():
    """A setting that nobody reads is an error, not a surprise later."""
    with pytest.raises(
        AnnotatorError, match=r"annotator 'clip-mini' has no setting 'devise'; known: .*device"
    ):
        registry.build("clip-mini", {"devise": "cpu"})


def test_a_setting_of_the_wrong_type_says_what_it_should_be():
    """Numbers and choices are checked before anything is loaded."""
    with pytest.raises(AnnotatorError, match="'threads' of annotator 'clip-mini' is 0; it should be a whole"):
        registry.build("clip-mini", {"threads": 0})
    with pytest.raises(
        AnnotatorError, match="'device' of annotator 'clip-mini' is 'gpu'; it should be one of auto"
    ):
        registry.build("clip-mini", {"device": "gpu"})


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    """Without torch the error tells what to install."""
    for module in [name for name in sys.modules if name.startswith("annotators.minis")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(AnnotatorError, match=r"'clip-mini' needs torch, .* pip install 'mitl\[torch\]'"):
        registry.build("clip-mini", {})


class Constant:
    """An annotator of another package."""

    name = "constant"
    kind = AnnotatorKind.INNER_PRODUCT
    fingerprint = "0" * 16

    def __init__(self, config):
        self.config = config

    def encode_images(self, items): ...

    def encode_captions(self, items): ...

    def similarities(self, queries, gallery): ...


class Misnamed(Constant):
    name = "other"


class Unhashed(Constant):
    name, fingerprint = "unhashed", "ViT-B-32-laion2b"


class Unkind(Constant):
    name, kind = "unkind", "inner_product"


class Placed(Constant):
    name = "placed"

    def __init__(self, config, project):
        self.config, self.project = config, project


def fails_inside(config):
    raise KeyError("weights")


@pytest.fixture
def added(monkeypatch):
    """Entry points of another package: sound, of a taken name, and each wrong in its own way."""
    here = Path(__file__).stem
    monkeypatch.setitem(sys.modules, here, sys.modules[__name__])
    targets = {
        "constant": f"{here}:Constant",
        "clip": f"{here}:Constant",
        "broken": "builtins:sorted",
        **{word.lower(): f"{here}:{word}" for word in ("Misnamed", "Unhashed", "Unkind", "Placed")},
        "fails": f"{here}:fails_inside",
        "absent": "no_such_module_anywhere:build",
        "../../evil": f"{here}:Constant",
    }
    points = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in targets.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_an_installed_package_adds_a_name(added):
    """An entry point is called with the configuration; it cannot take the name of one of the networks."""
    built = registry.build("constant", {"a": 1})

    assert isinstance(built, Annotator)
    assert built.config == {"a": 1}
    assert registry.build("placed", {"a": 1}, folder=Path("there")).project == Path("there")
    assert "constant" in registry.names()
    assert "constant" in {line.name for line in describe()}
    with pytest.raises(AnnotatorError, match="annotator 'clip' needs its weights"):
        registry.build("clip", {})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "^'builtins:sorted' gave a list for 'broken'; it should give an Annotator"),
        ("misnamed", "gave an annotator called 'other' for 'misnamed'; it should bear that name"),
        ("unhashed", "gave the fingerprint 'ViT-B-32-laion2b' for 'unhashed'; it should be a hash as hex"),
        ("unkind", "gave the kind 'inner_product' for 'unkind'; it should be a mitl.records.AnnotatorKind"),
        ("fails", "for the annotator 'fails', failed: KeyError: 'weights'"),
        ("absent", "for the annotator 'absent', failed: ModuleNotFoundError: No module named"),
        ("../../evil", r"cannot be called '\.\./\.\./evil'"),
    ],
)
def test_what_another_package_gives_is_checked(added, name, message):
    """No annotator, another name, no marks, a failure inside, a module that is gone, a name that leads elsewhere."""
    with pytest.raises(AnnotatorError, match=message):
        registry.build(name, {})


class Handing:
    """Another package's wrapper, which hands on what it does not have itself."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class Able(Constant):
    """It offers all that an annotator may offer besides."""

    reusable_encodings = reads_pictures = True
    encoding_fingerprint, is_exact, device, seed = "less", False, "cuda:0", 3

    def scores(self, images, captions, image_rows, caption_rows, *, exact=False):
        return None

    def top_k(self, queries, gallery, k, *, block_bytes, progress):
        return None


def abilities(annotator: Annotator) -> list[object]:
    """All that the pipeline asks of an annotator besides its similarities."""
    return [
        base.is_reusable(annotator),
        base.encoding_fingerprint(annotator),
        base.reads_pictures(annotator, unsaid=False),
        base.scores_pairs(annotator),
        base.is_exact(annotator),
        base.searches_itself(annotator),
        base.draws_samples(annotator),
        base.device_name(annotator),
        base.measured_recall(annotator),
    ]


def test_what_an_annotator_may_offer_is_used_where_it_is_there():
    """Also where a wrapper hands it on; an annotator without any of it has the plain way of each."""
    able, plain = Able({}), Constant({})

    assert abilities(able) == [True, "less", True, True, False, True, True, "cuda:0", None]
    assert abilities(Handing(able)) == abilities(able)
    assert abilities(plain) == [False, plain.fingerprint, False, False, True, False, False, None, None]
    assert base.reads_pictures(plain, unsaid=True)


def test_the_pipeline_asks_for_abilities_in_one_place():
    """No other module looks for them by name."""
    names = (
        "reusable_encodings|encoding_fingerprint|reads_pictures|scores|is_exact|top_k|seed|device|measured"
    )
    asking = re.compile(rf"(?:hasattr|getattr)\([\w.]+, \"(?:{names})\"")
    root = Path(base.__file__).parent.parent
    files = [path for folder in ("mitl", "annotators") for path in (root / folder).rglob("*.py")]

    assert [path.name for path in files if asking.search(path.read_text(encoding="utf-8"))] == ["base.py"]
