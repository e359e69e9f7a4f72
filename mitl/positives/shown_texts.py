"""The texts of a release: what workers wrote, without what would tell who they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mitl.positives.judgement_columns import UNWRITTEN, JudgementColumns
from mitl.positives.markdown import listed
from mitl.positives.scrubbing import Removed, scrub_all
from mitl.records import several

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


def scrubbed_columns(
    judgements: JudgementColumns, ids: Iterable[str]
) -> tuple[JudgementColumns, TextScan | None]:
    """The judgements with their texts scrubbed, and what was found in those of answers that a release shows.

    Judgements without texts stay as they are.
    """
    if judgements.text is None:
        return judgements, None
    found = scrub_all(judgements.texts, ids)
    texts = tuple(sorted({one.text for one in found.values()}))
    place = {text: code for code, text in enumerate(texts)}
    # The last place stands for UNWRITTEN.
    moved = np.array([*(place[found[text].text] for text in judgements.texts), UNWRITTEN], np.int32)
    columns = replace(judgements, text=moved[judgements.text], texts=texts)
    shown = judgements.text[~judgements.gold & (judgements.text != UNWRITTEN)]
    removed: Counter[Removed] = Counter()
    changed = 0
    for code, times in zip(*np.unique(shown, return_counts=True), strict=True):
        one = found[judgements.texts[code]]
        changed += int(times) * bool(one.removed)
        for kind, count in one.removed.items():
            removed[kind] += int(times) * count
    return columns, TextScan(len(shown), changed, dict(removed))
