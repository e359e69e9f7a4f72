"""Region features that a detector made elsewhere: the 36 regions an image that VSRN reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import AnnotatorError
from mitl.records import ImageItem

NO_EXTRACTOR = (
    "no extractor of regions ships; make the features of images of your own with a bottom-up-attention detector "
    "(36 boxes an image)"
)

_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"})


class RegionFeatures(ABC):
    """Regions (R, D) float32 by image; the files behind them stay as they are."""

    def __init__(self, path: Path, shape: tuple[int, int], digest: str) -> None:
        self.path, self.shape = path, shape
        self.fingerprint = digest
        """Hash of the features and of which image each belongs to."""

    @abstractmethod
    def find(self, item: ImageItem) -> str | None:
        """The name under which this image's features are kept, or None."""

    @abstractmethod
    def load(self, name: str) -> NDArray[Any]:
        """The array kept under this name, of whatever shape it has."""

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of what is kept under this name, without reading all of it where that is possible."""
        return self.load(name).shape

    def require(self, items: Sequence[ImageItem]) -> None:
        """Raise AnnotatorError where an image has no features or some of another shape, before any work begins."""
        missing = [item for item in items if self.find(item) is None]
        if missing:
            raise AnnotatorError(
                f"{str(self.path)!r} lacks the regions of {len(missing):,} of {len(items):,} images; "
                f"first: {missing[0].external_id!r}; {NO_EXTRACTOR}"
            )
        for item in items:
            self._check(item, self.shape_of(self.find(item) or ""))

    def read(self, item: ImageItem) -> NDArray[np.float32]:
        """(R, D) the regions of one image, in stored order; AnnotatorError where they are missing or not finite."""
        name = self.find(item)
        if name is None:
            raise AnnotatorError(
                f"{str(self.path)!r} lacks the regions of image {item.external_id!r}; {NO_EXTRACTOR}"
            )
        found = self.load(name)
        self._check(item, found.shape)
        if found.dtype.kind not in "fiu":
            raise AnnotatorError(
                f"the regions of image {item.external_id!r} in {str(self.path)!r} are "
                f"{found.dtype}; they should be float32"
            )
        with np.errstate(over="ignore"):
            regions = np.array(found, dtype=np.float32)
        if not np.isfinite(regions).all():
            raise AnnotatorError(
                f"the regions of image {item.external_id!r} in {str(self.path)!r} hold "
                f"{np.count_nonzero(~np.isfinite(regions)):,} numbers that are not finite; make them again"
            )
        return regions

    def _check(self, item: ImageItem, shape: tuple[int, ...]) -> None:
        if shape == self.shape:
            return
        regions, width = self.shape
        what = f"image {item.external_id!r} has features of shape {shape} in {str(self.path)!r}"
        if len(shape) == 2 and shape[1] == width:
            what = f"image {item.external_id!r} has {shape[0]} regions in {str(self.path)!r}"
        raise AnnotatorError(f"{what}; these weights read {regions} regions of {width} numbers")


def names_of(item: ImageItem) -> list[str]:
    """The names that features of this image may bear: its id, and a file name's stem where the id is one."""
    name = Path(item.external_id)
    return [item.external_id, *([name.stem] if name.suffix.lower() in _PICTURES else [])]
