"""Taking out of people's own words whatever tells who they are: addresses, numbers, ids.

What looks like one is taken, rather too much than too little: nobody needs a number of six digits to say why a
caption does not fit. It does not find names, and no rule does.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.positives.markdown import listed
from mitl.records import several
from mitl.records.frames import is_asked

MARK = "[removed]"
"""What stands where something was."""
MIN_ID = 6
"""Shorter ids are not looked for: chance would find them in any text."""


class Removed(StrEnum):
    """What was taken out; where one thing is several, the first that it is."""

    ID = "id"
    """Of a worker, an assignment or a HIT of the project, in whatever letters and inside a longer word too."""
    EMAIL = "email"
    """An e-mail address or an @name."""
    URL = "url"
    """An address of a page or a machine."""
    PHONE = "phone"
    """Seven digits or more with whatever is written between them."""
    NUMBER = "number"
    """Six digits or more in a row."""
    CODE = "code"
    """A long run of hexadecimal digits, or of letters and digits: how ids and keys of other sites look."""


_ENDINGS = "com|org|net|edu|gov|info|biz|io|co|uk|de|fr|in|ru|cn|jp|br|us|ca|eu|app|dev|me|ly|gl|ai"
_PATTERNS: Mapping[Removed, re.Pattern[str]] = {
    # A run is tried from its start alone, so that a hostile text takes no quadratic time.
    Removed.EMAIL: re.compile(
        r"""(?<![\w.+%'-])[\w.+%'-]+\s?(?:@|[(\[{]\s?at\s?[)\]}])\s?
            [\w-]+(?:\s?(?:\.|[(\[{]\s?dot\s?[)\]}])\s?[\w-]+)+
        | (?<![\w.+-])[\w.+-]+\s+at\s+[\w-]+\s+dot\s+\w{2,}  # as people write it against machines
        | (?<![\w.+%'-])[\w.+%'-]*@[\w.-]+""",
        re.IGNORECASE | re.VERBOSE,
    ),
    Removed.URL: re.compile(
        rf"""(?<![a-z0-9+.-])[a-z0-9+.-]+://\S+
        | \bwww\d?\.\S+
        | (?<![\w.-])[\w.-]+\.[a-z]{{2,}}/\S*
        | (?<![\w.-])[\w.-]+\.(?:{_ENDINGS})(?![\w-])
        | \b\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b
        | \b(?:[0-9a-f]{{0,4}}:){{3,7}}[0-9a-f]{{1,4}}\b""",
        re.IGNORECASE | re.VERBOSE,
    ),
    Removed.PHONE: re.compile(r"\+?\(?\d(?:[\s().\-/+]{0,3}\d){6,}"),
    Removed.NUMBER: re.compile(r"\d{6,}"),
    Removed.CODE: re.compile(
        r"""(?<![a-z0-9])(?=[a-f]*\d)[0-9a-f]{8,}(?![a-z0-9])
        | (?<![a-z0-9])[0-9a-f]{12,}(?![a-z0-9])
        | (?<![a-z0-9])(?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{10,}""",
        re.IGNORECASE | re.VERBOSE,
    ),
}


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """Somebody's words without what tells who they are."""

    text: str
    removed: Mapping[Removed, int]
    """How many of each kind were taken out; kinds of which there were none are left out."""


class Scrubber:
    """Knows the ids of a project.

    Args:
        ids: of workers, assignments and HITs; those under six characters are not looked for.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ids = frozenset(folded for value in ids if len(folded := value.casefold()) >= MIN_ID)
        self._lengths = sorted({len(value) for value in self._ids})

    def scrub(self, text: str) -> Scrubbed:
        """The text with ``MARK`` in place of each finding; a text without any stays as it is, letter for letter.

        Letters that only look different (full width, invisible marks between) hide nothing: where they would, the
        text is given in plain ones.
        """
        plain = _plain(text)
        scrubbed = self._scrub(text)
        beneath = scrubbed if plain == text else self._scrub(plain)
        return beneath if sum(beneath.removed.values()) > sum(scrubbed.removed.values()) else scrubbed

    def _scrub(self, text: str) -> Scrubbed:
        removed: Counter[Removed] = Counter()
        while True:
            parts = [self._part(part, removed) for part in text.split(MARK)]
            shorter = MARK.join(parts)
            if shorter == text:
                return Scrubbed(text, dict(removed))
            # What stood beside a finding is looked at once more, by itself.
            text = shorter

    def _part(self, text: str, removed: Counter[Removed]) -> str:
        kept, end = [], 0
        for kind, start, stop in _merged(self._findings(text)):
            kept.append(text[end:start])
            removed[kind] += 1
            end = stop
        return MARK.join([*kept, text[end:]]) if kept else text

    def _findings(self, text: str) -> list[tuple[Removed, int, int]]:
        findings = [(Removed.ID, start, stop) for start, stop in self._id_places(text)]
        for kind, pattern in _PATTERNS.items():
            for match in pattern.finditer(text):
                bare = kind is Removed.PHONE and match.group().isdigit()
                findings.append((Removed.NUMBER if bare else kind, *match.span()))
        return findings

    def _id_places(self, text: str) -> Iterable[tuple[int, int]]:
        folded = text.casefold()
        if len(folded) != len(text):  # a letter that folds to two; places would be off
            folded = "".join(letter if len(low := letter.casefold()) != 1 else low for letter in text)
        for length in self._lengths:
            for start in range(len(folded) - length + 1):
                if folded[start : start + length] in self._ids:
                    yield start, start + length


def scrub_all(texts: Collection[str], ids: Iterable[str]) -> dict[str, Scrubbed]:
    """Each distinct text as it may be shown."""
    scrubber = Scrubber(ids)
    return {text: scrubber.scrub(text) for text in sorted(set(texts))}


def _plain(text: str) -> str:
    """In compatibility form, without characters that are not seen."""
    seen = (letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", "".join(seen))


def _merged(findings: Iterable[tuple[Removed, int, int]]) -> list[tuple[Removed, int, int]]:
    """Findings that overlap as one, of the kind that comes first in ``Removed``; by place."""
    order = list(Removed)
    merged: list[tuple[Removed, int, int]] = []
    for kind, start, stop in sorted(findings, key=lambda finding: finding[1:]):
        if merged and start < merged[-1][2]:
            first, begin, end = merged[-1]
            merged[-1] = (min(first, kind, key=order.index), begin, max(end, stop))
        else:
            merged.append((kind, start, stop))
    return merged


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
    columns: tuple[str, ...] = ("text",)
    """Where they stand."""

    @property
    def line(self) -> str:
        """What was found, in words."""
        removals = (
            f"removed {self.taken} in {self.changed:,} of them"
            if self.removed
            else "nothing had to be removed"
        )
        column = several(len(self.columns), "column").partition(" ")[2]
        return f"texts: {self.texts:,} in the {column} {listed(self.columns)}; {removals}"

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
    judgements: pd.DataFrame, ids: Iterable[str], shown: NDArray[np.bool_] | None = None
) -> tuple[pd.DataFrame, TextScan | None]:
    """The judgements with their texts scrubbed, and what was found in those of answers that a release shows.

    Judgements without texts stay as they are.

    Args:
        shown: which rows a release shows; by default those of pairs that were asked, neither controls nor audits.
    """
    columns = [
        str(name) for name, kind in judgements.dtypes.items() if kind == "category" and name != "worker"
    ]
    if not columns:
        return judgements, None
    known = scrub_all({text for name in columns for text in judgements[name].cat.categories}, ids)
    texts = pd.CategoricalDtype(sorted({one.text for one in known.values()}))
    scrubbed = {
        name: judgements[name].map({text: one.text for text, one in known.items()}).astype(texts)
        for name in columns
    }
    is_shown = is_asked(judgements) if shown is None else shown
    removed: Counter[Removed] = Counter()
    total = changed = 0
    for name in columns:
        written = judgements.loc[is_shown, name].value_counts()
        total += int(written.sum())
        for text, times in zip(written.index, written.tolist(), strict=True):
            changed += times * bool(known[text].removed)
            for kind, count in known[text].removed.items():
                removed[kind] += times * count
    return judgements.assign(**scrubbed), TextScan(total, changed, +removed, tuple(columns))
