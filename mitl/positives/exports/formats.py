"""The kinds of export by name: a module with a ``FORMAT`` and a line here make one more."""

from __future__ import annotations

from collections.abc import Mapping

from mitl.positives.exports import beir, hub, mteb, trec
from mitl.positives.exports.content import Format

FORMATS: Mapping[str, Format] = {
    "trec": trec.FORMAT,
    "beir": beir.FORMAT,
    "mteb": mteb.FORMAT,
    "hf": hub.FORMAT,
}
