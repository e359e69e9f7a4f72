"""CLIP's byte-level byte-pair encoding, from its list of merges alone.

A text is cleaned, lower-cased and cut into words; a word is its UTF-8 bytes, of which the pair that stands highest
on the list is merged again and again. The vocabulary is what can come out: 256 bytes, 256 bytes that end a word, one
entry for each merge, and the start and the end of a text.

Cleaning follows CLIP's own code, which first lets the package ftfy mend the text and then resolves HTML entities
twice. Of ftfy's mending this does the part that is plain rules (typographic quotes, ligatures, full-width letters,
control characters, composed accents); it does not guess at text that was decoded wrongly (mojibake). What a text
becomes must not depend on what is installed. On COCO's captions none of this changes a token.
Source: Radford et al., CLIP, ICML 2021; Sennrich et al., Neural machine translation of rare words, ACL 2016.
"""

from __future__ import annotations

import hashlib
import html
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import regex  # type: ignore[import-untyped]  # it ships no type information
from numpy.typing import NDArray

VERSION = 1
"""Raised when the same text gives other tokens."""

START, END = "<|startoftext|>", "<|endoftext|>"
WORD_END = "</w>"

_WORDS = regex.compile(
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+",
    regex.IGNORECASE,
)
_WIDE = regex.compile("[\u0132\u0133\u0149\u01c4-\u01cc\u01f1-\u01f3\ufb00-\ufb06\uff01-\uffef\u3000]")
_SINGLE_QUOTES = regex.compile("[\u02bc\u2018-\u201b]")
_DOUBLE_QUOTES = regex.compile("[\u201c-\u201f]")
_SURROGATES = regex.compile("[\ud800-\udfff]")
_CONTROLS = regex.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\u206a-\u206f\ufeff\ufff9-\ufffc]")

_MOST_WORDS = 1 << 18
"""Words whose tokens are kept at a time."""

Merge = tuple[str, str]


def clean(text: str) -> str:
    """The text as CLIP's tokeniser reads it, lower case, with single blanks."""
    if _SURROGATES.search(text):
        # Two halves become their letter, a lone one the sign for what cannot be read.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _WIDE.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    text = _DOUBLE_QUOTES.sub('"', _SINGLE_QUOTES.sub("'", text))
    text = unicodedata.normalize("NFC", _CONTROLS.sub("", text))
    return " ".join(html.unescape(html.unescape(text)).split()).lower()


def words(text: str) -> list[str]:
    """The words of a text, cleaned, each in the alphabet of byte letters."""
    return ["".join(LETTERS[byte] for byte in word.encode()) for word in _WORDS.findall(clean(text))]


def _letters() -> list[str]:
    """A visible letter for each byte: itself where it is visible in Latin-1, else one from 256 on."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


LETTERS = _letters()
_ALPHABET = sorted(LETTERS, key=lambda letter: (ord(letter) > 255, ord(letter)))
"""In the order of the vocabulary: visible bytes first."""


class BytePairEncoder:
    """Texts to token numbers; the start of a text is the last number but one, its end the last."""

    def __init__(self, merges: Sequence[Merge]) -> None:
        """Take the merges, the first to be done first; ValueError where one joins what no earlier one made."""
        self.merges = tuple(merges)
        symbols = [*_ALPHABET, *(letter + WORD_END for letter in _ALPHABET)]
        known = set(symbols)
        for place, (left, right) in enumerate(self.merges):
            if left not in known or right not in known:
                raise ValueError(f"merge {place} joins {left!r} and {right!r}, which no earlier merge made")
            known.add(left + right)
        symbols += [left + right for left, right in self.merges] + [START, END]
        self.number_of = {symbol: number for number, symbol in enumerate(symbols)}
        self._rank = {merge: rank for rank, merge in enumerate(self.merges)}
        self._numbers: dict[str, tuple[int, ...]] = {}

    @property
    def size(self) -> int:
        """Tokens in the vocabulary."""
        return 512 + len(self.merges) + 2

    @property
    def end(self) -> int:
        """The token that ends a text, the greatest of all."""
        return self.size - 1

    @property
    def sha256(self) -> str:
        """Hash of the merges, however the file that held them was written."""
        return hashlib.sha256("\n".join(map(" ".join, self.merges)).encode()).hexdigest()

    def encode(self, text: str) -> NDArray[np.int64]:
        """(L,) numbers of a text with its start and end, neither padded nor cut off."""
        numbers = [self.size - 2]
        for word in words(text):
            numbers.extend(self._of_word(word))
        return np.array([*numbers, self.end], dtype=np.int64)

    def _of_word(self, word: str) -> tuple[int, ...]:
        found = self._numbers.get(word)
        if found is None:
            if len(self._numbers) >= _MOST_WORDS:
                self._numbers.clear()
            special = self.number_of[word] if word in (START, END) else None
            parts = [special] if special is not None else [self.number_of[s] for s in self._merged(word)]
            found = self._numbers[word] = tuple(parts)
        return found

    def _merged(self, word: str) -> list[str]:
        symbols = [*word[:-1], word[-1] + WORD_END]
        while len(symbols) > 1:
            best = min(pairwise(symbols), key=lambda pair: self._rank.get(pair, len(self._rank)))
            if best not in self._rank:
                break
            symbols = joined(symbols, best)
        return symbols


def joined(symbols: Sequence[str], pair: Merge) -> list[str]:
    """The symbols with each occurrence of the pair, from the left, as one."""
    found: list[str] = []
    place = 0
    while place < len(symbols):
        together = tuple(symbols[place : place + 2]) == pair
        found.append("".join(pair) if together else symbols[place])
        place += 2 if together else 1
    return found


def learn_merges(texts: Iterable[str], count: int) -> list[Merge]:
    """The ``count`` merges of the most frequent pairs, ties in alphabetical order; fewer where words run out."""
    frequency = Counter(word for text in texts for word in words(text))
    split = {word: [*word[:-1], word[-1] + WORD_END] for word in frequency}
    merges: list[Merge] = []
    while len(merges) < count:
        pairs: Counter[Merge] = Counter()
        for word, symbols in split.items():
            for pair in pairwise(symbols):
                pairs[pair] += frequency[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        split = {word: joined(symbols, best) for word, symbols in split.items()}
    return merges
