"""CLIP's byte-level byte-pair encoding, from its list of merges alone.

A text is cleaned, lower-cased and cut into words; a word is its UTF-8 bytes, of which the pair that stands highest
on the list is merged again and again. The vocabulary is what can come out: 256 bytes, 256 bytes that end a word, one
entry for each merge, and the start and the end of a text.

Cleaning follows CLIP's own code, which first lets the package ftfy mend the text and then resolves HTML entities
twice. Of ftfy's mending this does the part that is plain rules (typographic quotes, ligatures, full-width letters,
control characters, composed accents); it does not guess at text that was decoded wrongly (mojibake). What a text
becomes must not depend on what is installed. On COCO's captions none of this changes a token. The package
``tokenizers`` does the merges; it would cut words at 17,000 characters otherwise, for it knows other Unicode tables.
Source: Radford et al., CLIP, ICML 2021; Sennrich et al., Neural machine translation of rare words, ACL 2016.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import regex  # type: ignore[import-untyped]  # it ships no type information
from numpy.typing import NDArray
from tokenizers.models import BPE

from mitl.errors import AnnotatorError

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

Merge = tuple[str, str]


def clean(text: str) -> str:
    """The text as CLIP's tokeniser reads it, lower case, with single blanks."""
    if _SURROGATES.search(text):
        # Two halves become their letter, a lone one the sign for what cannot be read.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    text = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
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
        earlier = set(symbols)
        for place, (left, right) in enumerate(self.merges):
            if left not in earlier or right not in earlier:
                raise ValueError(f"merge {place} joins {left!r} and {right!r}, which no earlier merge made")
            earlier.add(left + right)
        symbols += [left + right for left, right in self.merges] + [START, END]
        self.number_of = {symbol: number for number, symbol in enumerate(symbols)}
        self._model = BPE(self.number_of, list(self.merges), end_of_word_suffix=WORD_END)

    @property
    def size(self) -> int:
        """Tokens in the vocabulary."""
        return 512 + len(self.merges) + 2

    @property
    def end(self) -> int:
        """The token that ends a text, the greatest of all."""
        return self.size - 1

    def to_text(self) -> str:
        """The merges, one a line, as ``merges_of_lines`` reads them."""
        return "\n".join(map(" ".join, self.merges))

    @property
    def sha256(self) -> str:
        """Hash of the merges, however the file that held them was written."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def encode(self, text: str) -> NDArray[np.int64]:
        """(L,) numbers of a text with its start and end, neither padded nor cut off."""
        numbers = [self.size - 2]
        for word in words(text):
            special = word in (START, END)
            numbers += [self.number_of[word]] if special else [t.id for t in self._model.tokenize(word)]
        return np.array([*numbers, self.end], dtype=np.int64)


def joined(symbols: Sequence[str], pair: Merge) -> list[str]:
    """The symbols with each occurrence of the pair, from the left, as one."""
    whole: list[str] = []
    place = 0
    while place < len(symbols):
        together = tuple(symbols[place : place + 2]) == pair
        whole.append("".join(pair) if together else symbols[place])
        place += 2 if together else 1
    return whole


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


OFFICIAL_NAME = "bpe_simple_vocab_16e6.txt.gz"
OFFICIAL_SHA256 = "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a"
PACKAGES = ("open_clip", "clip", "pcmepp")
"""Installed packages that bring the official file; they are looked at, never imported."""
LARGEST = 1 << 26
"""Bytes of an unpacked list; the official one has a tenth."""


def read_encoder(path: Path, size: int) -> BytePairEncoder:
    """The encoder with a vocabulary of ``size`` tokens from a file of merges, packed or not, or a ``tokenizer.json``.

    As in CLIP's own code, of a longer list the first ``size`` - 514 merges are used.

    Raises:
        AnnotatorError: the file is missing, is not a list of merges, or is too short for ``size``.
    """
    try:
        raw = path.read_bytes()
        text = _unpacked(raw).decode()
    except FileNotFoundError as error:
        raise AnnotatorError(f"no file of merges {str(path)!r}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as a list of merges: {error}") from error
    merges = _from_json(text, path) if path.suffix == ".json" else merges_of_lines(text, path)
    return encoder(merges, size, path)


def encoder(merges: list[Merge], size: int, source: Path) -> BytePairEncoder:
    """The encoder of the first merges that make ``size`` tokens; AnnotatorError where they are too few or wrong."""
    if len(merges) < size - 514:
        raise AnnotatorError(
            f"{str(source)!r} has {len(merges)} merges, but a vocabulary of {size} tokens needs {size - 514}; "
            f"take the list that belongs to the weights ({OFFICIAL_NAME} for CLIP's own)"
        )
    try:
        return BytePairEncoder(merges[: max(size - 514, 0)])
    except ValueError as error:
        raise AnnotatorError(f"{str(source)!r} is not a list of merges: {error}") from error


def merges_of_lines(text: str, source: Path) -> list[Merge]:
    """Two symbols a line, the most important merge first; AnnotatorError names the first line that is otherwise."""
    merges: list[Merge] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if number == 1 and "#version" in line:
            continue
        parts = line.split()
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
        elif parts:
            raise AnnotatorError(
                f"{str(source)!r} is not a list of merges: line {number} has {len(parts)} words, not two"
            )
    return merges


def find_official() -> Path | None:
    """The official file inside an installed package that brings it, checked by its hash; None where there is none."""
    for package in PACKAGES:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder).rglob(OFFICIAL_NAME)):
                if hashlib.sha256(path.read_bytes()).hexdigest() == OFFICIAL_SHA256:
                    return path
    return None


def _unpacked(raw: bytes) -> bytes:
    if raw[:2] != b"\x1f\x8b":
        return raw
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(raw, LARGEST)
    if not unpacker.eof:
        raise gzip.BadGzipFile("it is cut off" if not unpacker.unconsumed_tail else "it is far too long")
    return text


def _from_json(text: str, path: Path) -> list[Merge]:
    """Of a ``tokenizer.json``, whose merges are texts of two words or lists of two."""
    try:
        listed = json.loads(text)["model"]["merges"]
        pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in listed]
        return [(str(left), str(right)) for left, right in pairs]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise AnnotatorError(f"{str(path)!r} is not a tokenizer.json with merges") from error
