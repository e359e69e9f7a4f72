"""Vocabularies in every form their authors wrote them, and files that try to be more than that."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators.inputs.vocabularies import (
    END,
    RELEASED,
    SPECIALS,
    START,
    UNKNOWN,
    Vocabulary,
    read_vocabulary,
)
from mitl.errors import AnnotatorError

WORDS = (*SPECIALS, "a", "dog", "n't", "field..", "``", "is", "can", "not")
FORMS = (
    "pickle of a dict",
    "object of Python 2",
    "old-style object",
    "protocol 0",
    "json",
    "json list",
    "txt",
)


class Python2:
    """Writes a pickle as Python 2.7 did: the specials were byte strings, the counted words unicode."""

    def __init__(self, module: str = "__main__", name: str = "Vocabulary") -> None:
        self.name = f"c{module}\n{name}\n".encode()

    def string(self, word: str) -> bytes:
        raw = word.encode()
        return pickle.SHORT_BINSTRING + bytes([len(raw)]) + raw

    def word(self, word: str) -> bytes:
        raw = word.encode()
        return (
            self.string(word) if word in SPECIALS else pickle.BINUNICODE + struct.pack("<I", len(raw)) + raw
        )

    def number(self, number: int) -> bytes:
        return (
            pickle.BININT2 + struct.pack("<H", number) if number > 255 else pickle.BININT1 + bytes([number])
        )

    def state(self, words: Sequence[str]) -> bytes:
        """The attributes idx, idx2word and word2idx."""
        pairs = [(self.number(number), self.word(word)) for number, word in enumerate(words)]
        forwards = b"".join(word + number for number, word in pairs)
        backwards = b"".join(number + word for number, word in pairs)
        return (
            b"}(" + self.string("idx") + self.number(len(words))
            + self.string("idx2word") + b"}(" + backwards + b"u"
            + self.string("word2idx") + b"}(" + forwards + b"uu"
        )  # fmt: skip

    def new_style(self, words: Sequence[str]) -> bytes:
        return b"\x80\x02" + self.name + b")\x81" + self.state(words) + b"b."

    def old_style(self, words: Sequence[str]) -> bytes:
        return b"\x80\x02(" + self.name + b"o" + self.state(words) + b"b."


def protocol_0(words: Sequence[str]) -> bytes:
    """What ``pickle.dump(vocabulary, file)`` wrote in Python 2: text, and an object made by copy_reg."""
    pairs = [(f"V{word}\n", f"I{number}\n") for number, word in enumerate(words)]
    forwards = "".join(f"{word}{number}s" for word, number in pairs)
    backwards = "".join(f"{number}{word}s" for word, number in pairs)
    text = (
        "ccopy_reg\n_reconstructor\n(c__main__\nVocabulary\nc__builtin__\nobject\nNtR"
        f"(dS'idx'\nI{len(words)}\nsS'word2idx'\n(d{forwards}sS'idx2word'\n(d{backwards}sb."
    )
    return text.encode()


def plain(words: Sequence[str]) -> dict[str, object]:
    numbered = list(enumerate(words))
    return {"idx": len(words), "idx2word": dict(numbered), "word2idx": {word: n for n, word in numbered}}


def written(folder: Path, form: str, words: Sequence[str] = WORDS) -> Path:
    """The words in a file of this form."""
    path = folder / {"json": "v.json", "json list": "v.json", "txt": "v.txt"}.get(form, "v.pkl")
    path.write_bytes(
        {
            "pickle of a dict": lambda: pickle.dumps(plain(words), 3),
            "object of Python 2": lambda: Python2().new_style(words),
            "old-style object": lambda: Python2("vocab").old_style(words),
            "protocol 0": lambda: protocol_0(words),
            "json": lambda: json.dumps(plain(words)).encode(),
            "json list": lambda: json.dumps(list(words)).encode(),
            "txt": lambda: "\n".join(words).encode(),
        }[form]()
    )
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_words(tmp_path: Path, form: str):
    """Words in the order of their numbers, whoever wrote the file."""
    assert read_vocabulary(written(tmp_path, form)) == Vocabulary(WORDS)


def test_a_large_vocabulary_of_python_2_is_read(tmp_path: Path):
    """Numbers beyond a byte, as the 10,006 words need them."""
    words = (*SPECIALS, *(f"w{number}" for number in range(10_002)))

    found = read_vocabulary(written(tmp_path, "object of Python 2", words))

    assert found.words == words
    assert found.description == "10,006 words, none of the released lists"


def test_a_caption_becomes_numbers_between_start_and_end():
    """Unknown words share a number; nothing is cut off, and 300 words are 302 numbers."""
    vocabulary = Vocabulary(WORDS)

    assert vocabulary.encode("A dog isn't a zebra").tolist() == [START, 4, 5, 9, 6, 4, UNKNOWN, END]
    assert vocabulary.encode("a field..").tolist() == [START, 4, 7, END]
    assert vocabulary.encode("").tolist() == [START, END]
    long = vocabulary.encode("dog " * 300)
    assert long.shape == (302,)
    assert long.dtype == np.int64


def test_the_order_of_the_words_is_what_tells_lists_apart():
    """The fingerprint is the SHA-256 of the words in their order, joined by newlines."""
    one = Vocabulary((*SPECIALS, "a", "b"))
    other = Vocabulary((*SPECIALS, "b", "a"))

    assert one.fingerprint == hashlib.sha256(b"<pad>\n<start>\n<end>\n<unk>\na\nb").hexdigest()
    assert one.fingerprint != other.fingerprint


def test_a_released_list_is_named(monkeypatch: pytest.MonkeyPatch):
    """A known fingerprint says which file this is."""
    vocabulary = Vocabulary(WORDS)
    monkeypatch.setitem(RELEASED, vocabulary.fingerprint, "the toy vocabulary")

    assert vocabulary.description == "12 words, the toy vocabulary"


def test_a_vocabulary_of_the_wrong_size_is_named():
    """One line has both sizes and what to do."""
    with pytest.raises(
        AnnotatorError, match=r"'m.pth' was trained with 10,006 words, but the vocabulary has 12 words"
    ):
        Vocabulary(WORDS).require_size(10_006, Path("m.pth"))


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), min_size=1), unique=True))
def test_words_survive_their_text(words: list[str]):
    """What ``to_text`` writes ``from_text`` reads."""
    kept = [word for word in words if word not in SPECIALS]
    vocabulary = Vocabulary((*SPECIALS, *kept))

    assert Vocabulary.from_text(vocabulary.to_text()) == vocabulary


# What is not a vocabulary


def word2idx(**changes: object) -> dict[object, object]:
    return {**{word: number for number, word in enumerate(WORDS)}, **changes}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([1], "holds a list"),
        ({"words": 3}, "gives 'words' the number 3|none with the number 0"),
        ({"word2idx": 7}, "'word2idx' .* is a int"),
        (word2idx(dog=99), "none with the number 5"),
        (word2idx(dog=4), "the words 'a' and 'dog' the number 4"),
        (word2idx(dog=5.0), "gives 'dog' the number 5.0"),
        (word2idx(dog=True), "gives 'dog' the number True"),
        ({**word2idx(), 3.5: 12}, "gives 3.5 the number 12"),
        (
            word2idx(dog=4, a=5, **{"<pad>": 1, "<start>": 0}),
            "should begin with <pad>, <start>, <end>, <unk>",
        ),
        ({}, "begins with nothing"),
        ({**plain(WORDS), "idx2word": dict(enumerate(WORDS[::-1]))}, "contradicts itself: number 0"),
    ],
)
def test_what_is_no_vocabulary_is_named(tmp_path: Path, found: object, message: str):
    """The file, what is wrong in it and what would be right, in one line."""
    path = tmp_path / "v.pkl"
    path.write_bytes(pickle.dumps(found, 2))

    with pytest.raises(AnnotatorError, match=message) as caught:
        read_vocabulary(path)

    assert "v.pkl" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.pkl", b""),
        ("v.pkl", b"\x80\x02}q\x00(U\x03i"),
        ("v.pkl", b"no pickle"),
        ("v.json", b"{"),
        ("v.json", b"[" * 100_000),
        ("v.txt", b"\xff\xfe"),
        ("v.txt", b"a\nb\n"),
        ("v.pkl", b"\x80\x02}U\x06caf\xe9\xe9sK\x00s."),
    ],
)
def test_damaged_files_give_one_line(tmp_path: Path, name: str, content: bytes):
    """Cut off, empty, of another kind or no text."""
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(AnnotatorError) as caught:
        read_vocabulary(path)

    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_cut_of_a_pickle_gives_one_line(tmp_path: Path):
    """A file that ends too early is never half a vocabulary."""
    whole = Python2().new_style(WORDS)
    path = tmp_path / "v.pkl"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(AnnotatorError):
            read_vocabulary(path)


def test_a_huge_file_is_not_read(tmp_path: Path):
    """A weights file given as vocabulary is refused by its size."""
    path = tmp_path / "v.pkl"
    with path.open("wb") as file:
        file.truncate(100 << 20)

    with pytest.raises(AnnotatorError, match="has 100 MiB, which is too much for a vocabulary"):
        read_vocabulary(path)


# Attacks


class Touches:
    """Makes a file when Python unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.system, (f"touch {self.path}",)


def attacks(sentinel: Path) -> dict[str, bytes]:
    command = f"touch {sentinel}".encode()
    call = b"cposix\nsystem\nU" + bytes([len(command)]) + command + b"\x85R"
    touch = f'__import__("pathlib").Path("{sentinel}").touch()'
    state = Python2().state(WORDS)
    return {
        "alone": pickle.dumps(Touches(sentinel), 2),
        "as a word": b"\x80\x02}" + call + b"K\x00s.",
        "as an attribute": pickle.dumps({**plain(WORDS), "extra": Touches(sentinel)}, 2),
        "in the object": b"\x80\x02c__main__\nVocabulary\n)\x81"
        + state[:-1]
        + Python2().string("x")
        + call
        + b"ub.",
        "as the object": b"\x80\x02" + call + state + b"b.",
        "as the class": b"\x80\x02cos\nVocabulary\n)\x81" + state + b"b.",
        "after the vocabulary": b"\x80\x02" + b"(" + Python2().new_style(WORDS)[2:-1] + call + b"1.",
        "through eval": b"c__builtin__\neval\n(S'" + touch.encode() + b"'\ntR.",
    }


@pytest.mark.parametrize("name", list(attacks(Path("x"))))
def test_nothing_in_a_vocabulary_runs(tmp_path: Path, name: str):
    """The file that the payload would make is not made, and one line names what it asked for."""
    sentinel, path = tmp_path / "ran", tmp_path / "v.pkl"
    path.write_bytes(attacks(sentinel)[name])

    with pytest.raises(AnnotatorError, match=r"v\.pkl.*(system|eval|Vocabulary)"):
        read_vocabulary(path)

    assert not sentinel.exists()


@pytest.mark.parametrize("name", ["alone", "as a word", "as an attribute", "through eval"])
def test_the_payloads_run_under_pythons_own_unpickler(tmp_path: Path, name: str):
    """So the test above shows something."""
    sentinel = tmp_path / "ran"

    pickle.loads(attacks(sentinel)[name])

    assert sentinel.exists()


def test_objects_of_other_classes_are_named(tmp_path: Path):
    """An author's own class is not imported, and a vocabulary is not looked for in it."""
    path = tmp_path / "v.pkl"
    path.write_bytes(Python2("data", "Dictionary").new_style(WORDS))

    with pytest.raises(AnnotatorError, match=r"holds an object of 'data\.Dictionary'; it should hold"):
        read_vocabulary(path)
