"""Words of captions as numbers, from a closed vocabulary that is stored with the weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PAD, START, END, UNKNOWN = range(4)
SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")
_WORD = re.compile(r"[a-z]+|[0-9]+")


def words_of(text: str) -> list[str]:
    """The lower-case words of a text; punctuation goes."""
    return _WORD.findall(text.lower())


class Vocabulary:
    """A closed list of words; any other word is ``<unk>``."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._number_of = {word: number for number, word in enumerate((*SPECIALS, *self.words))}

    def __len__(self) -> int:
        return len(self._number_of)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
        """All words of these texts, in alphabetical order."""
        return cls(sorted({word for text in texts for word in words_of(text)}))

    def encode(self, texts: Sequence[str], length: int) -> NDArray[np.int64]:
        """(N, length): start, words, end, padding; a text that is too long loses its last words."""
        rows = np.full((len(texts), length), PAD, dtype=np.int64)
        for row, text in zip(rows, texts, strict=True):
            words = [self._number_of.get(word, UNKNOWN) for word in words_of(text)]
            numbers = [START, *words[: length - 2], END]
            row[: len(numbers)] = numbers
        return rows
