"""The words that PVSE, VSRN and PCME know, and the files in which their authors ship them.

The order of the words is the order of a Python 2 dictionary and cannot be counted again from captions: without the
right file a network reads noise, and nothing but its results would show it. So a list of words says which one it
is.

Captions are cut into Punkt sentences and Treebank words. The released vocabularies were counted with NLTK 3.4.5 or
older. NLTK's plain ``TreebankWordTokenizer`` still has those rules (``field..`` stays one word), its
``word_tokenize`` no longer has. Sentences matter because only the last full stop of one is cut off its word. NLTK's
trained sentence model is data that pip does not bring, so Punkt runs here with the abbreviations below and without
word statistics.

Of the 25,000 captions of the COCO test split none differs from NLTK 3.4.5's ``word_tokenize`` with the trained
model; without sentences 18 do, with Punkt but no abbreviations 9, with NLTK 3.10.4's ``word_tokenize`` 27. Of
Flickr8k's 40,460 captions two differ ("slip 'n' slide", where 3.4.5 also cuts the apostrophe off a single letter).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from annotators.checkpoints.pickles import Inert, in_short, unpickle
from mitl.errors import AnnotatorError

if TYPE_CHECKING:
    from nltk.tokenize.punkt import PunktSentenceTokenizer
    from nltk.tokenize.treebank import TreebankWordTokenizer


VERSION = 1
"""Raised when the same caption gives other words; part of the fingerprint of what was encoded."""

# What the trained English model takes for abbreviations, as far as a caption may hold it. It does not know t.v.,
# etc. and oz., so a sentence ends there, in the vocabularies too.
_ABBREVIATIONS = """
mr mrs ms messrs dr prof gen col adm lt maj sen rep reps st jr sr
j.r j.k j.c j.j j.p j.b f.j w.w r.j d.h e.h w.c a.c
ave bros co corp inc ltd ft yr sw vs ct ok
jan feb aug sep sept oct nov dec tues wed fri a.m p.m a.d ph.d m.b.a
u.s u.k u.n u.s.a u.s.s.r d.c n.y l.a n.j n.c s.c n.h n.m r.i w.va
ala ariz calif colo conn fla ga ill kan ky mich minn nev okla ore pa tenn va vt wash wis
"""


def require_nltk() -> None:
    """Raise AnnotatorError where NLTK is missing, before long work that would need it at its end."""
    if find_spec("nltk") is None:
        raise AnnotatorError("captions are split by nltk, which is not installed; pip install 'mitl[torch]'")


def word_tokens(caption: str) -> list[str]:
    """The lower-case words and punctuation of a caption; none for an empty one.

    Source: the rules of the Penn Treebank; Kiss and Strunk, Unsupervised multilingual sentence boundary detection,
    Computational Linguistics 2006.

    Raises:
        AnnotatorError: NLTK is not installed.
    """
    sentences, words = _splitters()
    return [word for sentence in sentences.tokenize(caption.lower()) for word in words.tokenize(sentence)]


@lru_cache(maxsize=1)
def _splitters() -> tuple[PunktSentenceTokenizer, TreebankWordTokenizer]:
    require_nltk()
    # Importing NLTK takes a second: it brings SciPy and scikit-learn where they are installed.
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    from nltk.tokenize.treebank import TreebankWordTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types.update(_ABBREVIATIONS.split())
    return PunktSentenceTokenizer(parameters), TreebankWordTokenizer()


PAD, START, END, UNKNOWN = range(4)
SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")

RELEASED = {
    "b81b8aff163c37745e73532d64ba4a5a95ac69f6b72e44565a19837c6d8f400a": (
        "the COCO vocabulary of VSE++, PVSE and PCME (coco_vocab.pkl)"
    ),
    "d916772e8c8b705ef9e9db69302e9f83d173299a4acfbbbddf78523de7af281d": (
        "the COCO vocabulary of VSRN's region features (coco_precomp_vocab.pkl)"
    ),
}
"""Fingerprints of the released lists -> what they are."""

_MOST_BYTES = 64 << 20
"""The released files have under 1 MB."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A closed list of words in the order of their numbers; any other word is ``<unk>``.

    Raises:
        AnnotatorError: the first four words are not the specials, or a word is repeated or no text of one line.
    """

    words: tuple[str, ...]
    _number_of: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        odd = [word for word in self.words if not isinstance(word, str) or "\n" in word]
        if odd:
            raise AnnotatorError(f"a word of a vocabulary is {odd[0]!r}; it should be a text of one line")
        if self.words[: len(SPECIALS)] != SPECIALS:
            raise AnnotatorError(
                f"a vocabulary begins with {', '.join(map(repr, self.words[: len(SPECIALS)])) or 'nothing'}; "
                f"it should begin with {', '.join(SPECIALS)}"
            )
        number_of = {word: number for number, word in enumerate(self.words)}
        if len(number_of) < len(self.words):
            first = next(word for number, word in enumerate(self.words) if number_of[word] != number)
            raise AnnotatorError(f"a vocabulary has the word {first!r} twice")
        object.__setattr__(self, "_number_of", number_of)

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def from_word2idx(cls, word2idx: Mapping[object, object], source: str = "a vocabulary") -> Vocabulary:
        """The words of a mapping to their numbers, which must be 0 to n - 1; ``source`` is named in messages."""
        by_number: dict[int, str] = {}
        for word, number in word2idx.items():
            if not isinstance(word, str) or not isinstance(number, int) or isinstance(number, bool):
                raise AnnotatorError(
                    f"{source} gives {in_short(word)} the number {in_short(number)}; it should map words to numbers"
                )
            if number in by_number:
                raise AnnotatorError(
                    f"{source} gives the words {by_number[number]!r} and {word!r} the number {number}"
                )
            by_number[number] = word
        gaps = [number for number in range(len(by_number)) if number not in by_number]
        if gaps:
            raise AnnotatorError(
                f"{source} has {len(by_number):,} words, but none with the number {gaps[0]}; numbers should run "
                f"from 0 to {len(by_number) - 1} without a gap"
            )
        return cls._of((by_number[number] for number in range(len(by_number))), source)

    @classmethod
    def from_text(cls, text: str, source: str = "a vocabulary") -> Vocabulary:
        """The words of a text, one a line, in the order of their numbers."""
        return cls._of(text.removesuffix("\n").split("\n"), source)

    @classmethod
    def _of(cls, words: Iterable[str], source: str) -> Vocabulary:
        try:
            return cls(tuple(words))
        except AnnotatorError as error:
            raise AnnotatorError(f"{source} is not a vocabulary of these networks: {error}") from error

    def to_text(self) -> str:
        """The words, one a line, as ``from_text`` reads them."""
        return "\n".join(self.words)

    def encode(self, text: str) -> NDArray[np.int64]:
        """(L,) the numbers of ``<start>``, the caption's words and ``<end>``; nothing is cut off."""
        numbers = (self._number_of.get(word, UNKNOWN) for word in word_tokens(text))
        return np.array([START, *numbers, END], dtype=np.int64)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the words joined by newlines, as hex."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    @property
    def description(self) -> str:
        """How many words, and which released list they are."""
        return f"{len(self):,} words, {RELEASED.get(self.fingerprint, 'none of the released lists')}"

    def require_size(self, rows: int, weights: Path) -> None:
        """Raise AnnotatorError where the embedding table in ``weights`` has another number of rows than words."""
        if len(self) != rows:
            raise AnnotatorError(
                f"{str(weights)!r} was trained with {rows:,} words, but the vocabulary has {self.description}; "
                "set 'vocabulary' to the file that was released with these weights"
            )


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a pickle as its authors wrote it, of JSON, or of a text with a word a line.

    A pickle or JSON holds a dictionary with ``word2idx``, or (pickle) an object of any class called Vocabulary with
    that attribute, of Python 2 or 3; JSON may also be the mapping itself or a list of words. Nothing that a pickle
    names is imported or called.

    Raises:
        AnnotatorError: missing, damaged, too large, of another form, with words that are no such vocabulary, or a
            pickle that asks for anything but plain values.
    """
    source = repr(str(path))
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise AnnotatorError(f"{source} has {size >> 20} MiB, which is too much for a vocabulary")
        if path.suffix == ".txt":
            return Vocabulary.from_text(path.read_text(encoding="utf-8"), source)
        content = json.loads(path.read_text(encoding="utf-8")) if path.suffix == ".json" else _unpickled(path)
    except (OSError, ValueError, RecursionError) as error:
        raise AnnotatorError(f"{source} is not readable as a vocabulary: {error}") from error
    if isinstance(content, list) and path.suffix == ".json":
        return Vocabulary._of(content, source)
    return _from_mapping(content, source)


def _unpickled(path: Path) -> object:
    with path.open("rb") as file:
        content = unpickle(file, path)
    if not isinstance(content, Inert):
        return content
    if content.what.name != "Vocabulary":
        raise AnnotatorError(
            f"{str(path)!r} holds an object of {content.what.path!r}; it should hold a dictionary or a Vocabulary"
        )
    return content.state


def _from_mapping(content: object, source: str) -> Vocabulary:
    if not isinstance(content, Mapping):
        raise AnnotatorError(
            f"{source} holds a {type(content).__name__}; it should hold a mapping 'word2idx' of words to numbers"
        )
    foreign = [value for value in content.values() if isinstance(value, Inert)]
    if foreign:
        raise AnnotatorError(
            f"{source} holds an object of {foreign[0].what.path!r}; it should hold plain words and numbers"
        )
    word2idx = content.get("word2idx", content)
    if not isinstance(word2idx, Mapping):
        raise AnnotatorError(
            f"'word2idx' in {source} is a {type(word2idx).__name__}; it should map words to numbers"
        )
    vocabulary = Vocabulary.from_word2idx(word2idx, source)
    backwards = content.get("idx2word")
    if isinstance(backwards, Mapping):
        said = {str(number): word for number, word in backwards.items()}
        for number, word in enumerate(vocabulary.words):
            if said.get(str(number)) != word:
                raise AnnotatorError(
                    f"{source} contradicts itself: number {number} is {word!r} in 'word2idx' and "
                    f"{in_short(said.get(str(number)))} in 'idx2word'"
                )
    return vocabulary
