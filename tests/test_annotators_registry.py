"""Names of machine annotators, and what is said when one cannot be built."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from annotators import registry
from annotators.base import Annotator
from mitl.errors import AnnotatorError

MINIS = ["clip-mini", "pcme-mini", "pvse-mini", "vilt-mini", "vsrn-mini"]


def test_names_are_the_minis_where_no_package_adds_any(monkeypatch):
    """The names that need no files of the user's are the five small networks, sorted."""
    monkeypatch.setattr(registry, "entry_points", lambda group: ())

    assert registry.names() == MINIS


def test_listing_imports_neither_torch_nor_numpy():
    """Listing and describing the names leaves every heavy module alone."""
    code = (
        "import sys; from annotators import registry; registry.names(); registry.describe();"
        "print([m for m in ('torch', 'numpy', 'sklearn', 'transformers', 'pyarrow', 'PIL') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_every_known_name_is_described():
    """The description covers the minis, the pivot form, files, and the full-size names as not ready."""
    ready = {line.name: line.ready for line in registry.describe()}

    assert set(MINIS) | {registry.PIVOT_FORM, "<any name>"} <= ready.keys()
    assert [ready[name] for name in registry.FULL_SIZE] == [False] * 5


def test_an_unknown_name_lists_the_known_ones():
    """A name with a typing error is answered with all names."""
    with pytest.raises(
        AnnotatorError, match=r"^no annotator called 'clop'; known: clip-mini, pcme-mini, pvse-"
    ):
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


@pytest.mark.parametrize("name", registry.FULL_SIZE)
def test_a_full_size_name_says_that_this_version_has_none(name):
    """Asking for the paper's network says so in one line and names what there is."""
    with pytest.raises(
        AnnotatorError, match=f"^this version has no full-size network '{name}'; use '{name}-mini'"
    ):
        registry.build(name, {})


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
    with pytest.raises(AnnotatorError, match=r"annotator 'clip-mini' has no setting 'devise'; known: device"):
        registry.build("clip-mini", {"devise": "cpu"})


def test_a_setting_of_the_wrong_type_says_what_it_should_be():
    """Numbers and choices are checked before anything is loaded."""
    with pytest.raises(AnnotatorError, match="'threads' of annotator 'clip-mini' is 0; it should be a whole"):
        registry.build("clip-mini", {"threads": 0})
    with pytest.raises(AnnotatorError, match="'device' of annotator 'clip-mini' is 'gpu'; it should be auto"):
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
    kind = "inner_product"
    fingerprint = "0"

    def __init__(self, config):
        self.config = config

    def encode_images(self, items): ...

    def encode_captions(self, items): ...

    def similarities(self, queries, gallery): ...


@pytest.fixture
def added(monkeypatch):
    """Entry points of another package: one gives no annotator, one has a name that leads elsewhere."""
    here = Path(__file__).stem
    monkeypatch.setitem(sys.modules, here, sys.modules[__name__])
    points = [
        EntryPoint("constant", f"{here}:Constant", registry.ENTRY_POINT_GROUP),
        EntryPoint("clip", f"{here}:Constant", registry.ENTRY_POINT_GROUP),
        EntryPoint("broken", "builtins:list", registry.ENTRY_POINT_GROUP),
        EntryPoint("../../evil", f"{here}:Constant", registry.ENTRY_POINT_GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_an_installed_package_adds_a_name(added):
    """An entry point is called with the configuration; it may also take a full-size name."""
    built = registry.build("constant", {"a": 1})

    assert isinstance(built, Annotator)
    assert built.config == {"a": 1}
    assert "constant" in registry.names()
    assert isinstance(registry.build("clip", {}), Annotator)


def test_an_entry_point_that_gives_no_annotator_is_refused(added):
    """What another package gives is checked before it is used."""
    with pytest.raises(AnnotatorError, match="'builtins:list' gave a list for 'broken'"):
        registry.build("broken", {})


def test_an_entry_point_needs_a_plain_name_too(added):
    """A package cannot write its rankings elsewhere."""
    with pytest.raises(AnnotatorError, match=r"cannot be called '\.\./\.\./evil'"):
        registry.build("../../evil", {})
