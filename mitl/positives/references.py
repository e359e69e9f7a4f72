"""What a paper cites for what a project did: the entries of ``references.bib``.

Only what is certain is stated there: page numbers stand where a paper's own list of references shows them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

_ENTRIES = Path(__file__).with_name("references.bib").read_text(encoding="utf-8").rstrip("\n").split("\n\n")
REFERENCES = {entry.partition("{")[2].partition(",")[0]: f"{entry}\n" for entry in _ENTRIES}
"""Key → entry."""

OF_DATASETS = {
    "coco": ("lin2014coco", "chen2015captions", "karpathy2015splits"),
    "flickr30k": ("young2014flickr30k", "karpathy2015splits"),
}
"""Kind of data set → what describes it and its split."""
OF_NETWORKS = {
    "pvse": "song2019pvse",
    "vsrn": "li2019vsrn",
    "pcme": "chun2021pcme",
    "vilt": "kim2021vilt",
    "clip": "radford2021clip",
}
"""Network → what describes it."""

NAMES_OF_NETWORKS = {"pvse": "PVSE", "vsrn": "VSRN", "pcme": "PCME", "vilt": "ViLT", "clip": "CLIP"}
"""As their papers write them."""


def bibtex(keys: Collection[str]) -> str:
    """The entries of these keys, in alphabetical order."""
    return "\n".join(REFERENCES[key] for key in sorted(set(keys)))
