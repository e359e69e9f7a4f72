"""The words of scenes in the three forms in which the networks read them."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable

from annotators.inputs.tokens import word_tokens
from annotators.inputs.vocabularies import SPECIALS, Vocabulary

BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORD = re.compile(r"[a-z]+")


def vocabulary_of(texts: Iterable[str]) -> Vocabulary:
    """All words of these texts in alphabetical order, behind the specials."""
    return Vocabulary((*SPECIALS, *sorted({word for text in texts for word in word_tokens(text)})))


def wordpieces_of(texts: Iterable[str]) -> str:
    """BERT's specials, printable ASCII characters alone and within words, and all words of these texts, a line each.

    So every word of scenes is one piece, and other words are spelt out.
    """
    words = sorted({word for text in texts for word in _WORD.findall(text.lower())})
    letters = sorted({chr(code) for code in range(33, 127)} - set(string.ascii_uppercase))
    return "\n".join(
        dict.fromkeys((*BERT_SPECIALS, *letters, *(f"##{letter}" for letter in letters), *words))
    )
