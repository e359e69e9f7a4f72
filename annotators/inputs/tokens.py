"""Words of captions as the vocabularies of PVSE, VSRN and PCME count them: Punkt sentences, Treebank words.

The released vocabularies were counted with NLTK 3.4.5 or older. NLTK's plain ``TreebankWordTokenizer`` still has
those rules (``field..`` stays one word), its ``word_tokenize`` no longer has. Sentences matter because only the last
full stop of one is cut off its word. NLTK's trained sentence model is data that pip does not bring, so Punkt runs here
with the abbreviations below and without word statistics.

Of the 25,000 captions of the COCO test split none differs from NLTK 3.4.5's ``word_tokenize`` with the trained model;
without sentences 18 do, with Punkt but no abbreviations 9, with NLTK 3.10.4's ``word_tokenize`` 27. Of Flickr8k's
40,460 captions two differ ("slip 'n' slide", where 3.4.5 also cuts the apostrophe off a single letter).
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

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
