"""Captions become the words of the released vocabularies."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators.inputs import vocabularies
from annotators.inputs.vocabularies import word_tokens
from mitl.errors import AnnotatorError

CAPTIONS = [
    ("", ""),
    (" \n", ""),
    ("A man riding a Wave.", "a man riding a wave ."),
    # The oddities that the vocabularies hold.
    ("A large open field..", "a large open field.."),
    ("dogs...cats", "dogs ... cats"),
    ('A "stop" sign', "a `` stop '' sign"),
    ('"Go" it says', "`` go '' it says"),
    ('a sign that says "go"', "a sign that says `` go ''"),
    ("a 'one way' sign", "a 'one way ' sign"),
    ("the man's dog", "the man 's dog"),
    ("two dogs' bones", "two dogs ' bones"),
    ("it doesn't move", "it does n't move"),
    ("one cannot see", "one can not see"),
    ("it is gonna rain", "it is gon na rain"),
    ("cats, dogs; (and) [no] birds!", "cats , dogs ; ( and ) [ no ] birds !"),
    ("1,000 bikes at 5:30", "1,000 bikes at 5:30"),
    # Every sentence loses its last stop, an abbreviation does not.
    ("a cat. A dog? Birds!", "a cat . a dog ? birds !"),
    ("the corner of Howe St. and Broadway", "the corner of howe st. and broadway"),
    ("the corner of N. Astor and E. Division St.", "the corner of n. astor and e. division st ."),
    ("a mall in Washington D.C. on a day", "a mall in washington d.c. on a day"),
    ("a T.V. on a stand", "a t.v . on a stand"),
]


@pytest.mark.parametrize(("caption", "words"), CAPTIONS)
def test_words_are_those_of_the_treebank(caption: str, words: str):
    """Lower case, punctuation apart, contractions split, sentence by sentence."""
    assert " ".join(word_tokens(caption)) == words


def test_no_caption_is_too_long():
    """300 words come back as 300 words."""
    assert word_tokens("zebra " * 300) == ["zebra"] * 300


@given(st.text(st.sampled_from("abcXYZ019 .,!?;:%&-\n"), max_size=80))
def test_no_letter_is_lost(caption: str):
    """The words hold every character but white space, in order and in lower case."""
    words = word_tokens(caption)

    assert "".join(words) == "".join(caption.lower().split())
    assert all(word and not any(letter.isspace() for letter in word) for word in words)


@pytest.mark.shared
@pytest.mark.thorough
def test_real_captions_give_the_words_of_the_nltk_of_their_time(shared_data):
    """All 25,000 captions of COCO's test split: NLTK 3.4.5 with its trained sentence model gave this hash."""
    import pyarrow.parquet as pq

    file = shared_data / "coco_karpathy_test_captions" / "captions.parquet"
    found = [word_tokens(caption) for caption in pq.read_table(file)["text"].to_pylist()]

    lines = "\n".join(" ".join(words) for words in found)
    assert hashlib.sha256(lines.encode()).hexdigest() == (
        "c995fa6df8f7521dc562bf81b87530239b7ea53b4eba817a8b9f1f11dac6006a"
    )


def test_nltk_is_imported_when_it_is_needed():
    """Importing the module costs nothing; splitting a caption brings NLTK and needs none of its data."""
    program = (
        "import json, sys; from annotators.inputs.vocabularies import word_tokens; before = 'nltk' in sys.modules; "
        "print(json.dumps([before, word_tokens('a dog.'), 'nltk' in sys.modules]))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == [False, ["a", "dog", "."], True]


def test_a_missing_nltk_is_named(monkeypatch: pytest.MonkeyPatch):
    """One line says what to install."""
    monkeypatch.setattr(vocabularies, "find_spec", lambda name: None)
    vocabularies._splitters.cache_clear()

    with pytest.raises(AnnotatorError, match=r"nltk, which is not installed; pip install 'mitl\[torch\]'"):
        word_tokens("a dog")
