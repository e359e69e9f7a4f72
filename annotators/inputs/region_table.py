"""Region features as the bottom-up-attention detector writes them: a tsv with a line an image.

Source: Anderson et al., Bottom-up and top-down attention for image captioning and VQA, CVPR 2018; the columns as in
its released tsv files of 36 boxes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from annotators.fingerprint import fingerprint
from annotators.inputs.regions import RegionFeatures, names_of
from mitl.errors import AnnotatorError
from mitl.records import ImageItem

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")

_LONGEST_LINE = 64 << 20
"""A line of 36 boxes has 0.4 MB."""


class _Line(NamedTuple):
    offset: int
    length: int
    boxes: int
    characters: int


class RegionTable(RegionFeatures):
    """The tsv of origin: image_id, image_w, image_h, num_boxes, boxes, features (base64 of little-endian float32).

    The file is read through once, line by line, for its hash and for where each image's line is; a line is decoded
    when its image is asked for. Of several lines of one image the last counts, as in SCAN's converter.
    """

    def __init__(self, path: Path, shape: tuple[int, int]) -> None:
        digest = hashlib.sha256()
        self._lines: dict[str, _Line] = {}
        for number, (offset, line) in enumerate(_lines(path), 1):
            digest.update(line)
            fields = line.rstrip(b"\r\n").split(b"\t")
            if offset == 0 and fields[0] == b"image_id":
                continue
            if len(fields) != len(COLUMNS) or not fields[3].isdigit():
                raise AnnotatorError(
                    f"line {number} of {str(path)!r} is cut off or no line of region features; it should have "
                    f"the columns {', '.join(COLUMNS)}, separated by tabs"
                )
            name = fields[0].decode("utf-8", "replace").strip()
            self._lines[name] = _Line(offset, len(line), int(fields[3]), len(fields[5]))
        super().__init__(path, shape, fingerprint(features=digest.hexdigest()))

    def find(self, item: ImageItem) -> str | None:
        """The image's id as the first column has it."""
        return next((name for name in names_of(item) if name in self._lines), None)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """From the length of the text, without decoding it."""
        line = self._lines[name]
        if line.characters != _base64_length(line.boxes * self.shape[1] * 4):
            return self.load(name).shape
        return line.boxes, self.shape[1]

    def load(self, name: str) -> NDArray[Any]:
        """The decoded features of one line."""
        line = self._lines[name]
        with self.path.open("rb") as file:
            file.seek(line.offset)
            text = file.read(line.length).rstrip(b"\r\n").split(b"\t")[-1]
        try:
            numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
            return numbers.reshape(line.boxes, -1)
        except (binascii.Error, ValueError) as error:
            raise AnnotatorError(
                f"the features of image {name!r} in {str(self.path)!r} are cut off or no base64 of float32 numbers "
                f"for {line.boxes} regions; fetch the file again"
            ) from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    offset = 0
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise AnnotatorError(
                    f"{str(path)!r} has a line of more than {_LONGEST_LINE >> 20} MiB; it is no tsv of regions"
                )
            yield offset, line
            offset += len(line)


def _base64_length(size: int) -> int:
    return 4 * -(-size // 3)
