"""The texts of a release: what workers wrote, without what would tell who they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from mitl.positives.markdown import listed
from mitl.positives.scrubbing import Removed, scrub_all
from mitl.records import several
from mitl.records.frames import is_gold

_WORDS: Mapping[Removed, tuple[str, str]] = {
    Removed.ID: ("id of a worker, an assignment or a HIT", "ids of workers, assignments and HITs"),
    Removed.EMAIL: ("e-mail address", "e-mail addresses"),
    Removed.URL: ("web address", "web addresses"),
    Removed.PHONE: ("phone number", "phone numbers"),
    Removed.NUMBER: ("long number", "long numbers"),
    Removed.CODE: ("long code", "long codes"),
}


@dataclass(frozen=True, slots=True)
class TextScan:
    """What the scan of a release's texts found."""

    texts: int
    """Answers with a text."""
    changed: int
    """Those in which something was removed."""
    removed: Mapping[Removed, int]
    """How many of each kind; kinds of which there were none are left out."""

    @property
    def line(self) -> str:
        """What was found, in words."""
        found = (
            f"removed {self.taken} in {self.changed:,} of them"
            if self.removed
            else "nothing had to be removed"
        )
        return f"texts: {self.texts:,} in the column text; {found}"

    @property
    def taken(self) -> str:
        """What was removed, kind by kind."""
        return listed(
            [several(self.removed[kind], *_WORDS[kind]) for kind in Removed if kind in self.removed]
        )

    def as_json(self) -> dict[str, object]:
        """The figures for the manifest."""
        return {
            "texts": self.texts,
            "texts_changed": self.changed,
            "removed": {kind.value: self.removed[kind] for kind in Removed if kind in self.removed},
        }


def scrubbed_columns(judgements: pd.DataFrame, ids: Iterable[str]) -> tuple[pd.DataFrame, TextScan | None]:
    """The judgements with their texts scrubbed, and what was found in those of answers that a release shows.

    Judgements without texts stay as they are.
    """
    if "text" not in judgements:
        return judgements, None
    found = scrub_all(judgements["text"].cat.categories, ids)
    texts = pd.CategoricalDtype(sorted({one.text for one in found.values()}))
    scrubbed = judgements["text"].map({text: one.text for text, one in found.items()}).astype(texts)
    shown = judgements.loc[~is_gold(judgements), "text"].value_counts()
    removed: Counter[Removed] = Counter()
    changed = 0
    for text, times in zip(shown.index, shown.tolist(), strict=True):
        one = found[text]
        changed += times * bool(one.removed)
        for kind, count in one.removed.items():
            removed[kind] += times * count
    return judgements.assign(text=scrubbed), TextScan(int(shown.sum()), changed, +removed)
