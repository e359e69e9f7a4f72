"""Lists of merges as they are handed out: CLIP's own packed file, a hub folder's, plain lines."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from annotators.inputs.bpe import BytePairEncoder, Merge
from mitl.errors import AnnotatorError

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
        AnnotatorError: the file is missing, is no list of merges, or is too short for ``size``.
    """
    try:
        raw = path.read_bytes()
        text = _unpacked(raw).decode()
    except FileNotFoundError as error:
        raise AnnotatorError(f"no file of merges {str(path)!r}") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as a list of merges: {error}") from error
    merges = _from_json(text, path) if path.suffix == ".json" else _from_lines(text, path)
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
        raise AnnotatorError(f"{str(source)!r} is no list of merges: {error}") from error


def merges_of_lines(lines: Iterable[str]) -> list[Merge]:
    """Two symbols a line, the most important merge first; ValueError names the first line that is otherwise."""
    merges: list[Merge] = []
    for number, line in enumerate(lines, start=1):
        if number == 1 and "#version" in line:
            continue
        parts = line.split()
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
        elif parts:
            raise ValueError(f"line {number} has {len(parts)} words, not two")
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


def _from_lines(text: str, path: Path) -> list[Merge]:
    try:
        return merges_of_lines(text.split("\n"))
    except ValueError as error:
        raise AnnotatorError(f"{str(path)!r} is no list of merges: {error}") from error


def _from_json(text: str, path: Path) -> list[Merge]:
    """Of a ``tokenizer.json``, whose merges are texts of two words or lists of two."""
    try:
        listed = json.loads(text)["model"]["merges"]
        pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in listed]
        return [(str(left), str(right)) for left, right in pairs]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise AnnotatorError(f"{str(path)!r} is no tokenizer.json with merges") from error
