"""What is heard or seen, learnt from a data set's own pairs: signal features beside words, by kernel ridge regression.

It needs no weights: from the texts of a data set it learns to foretell the features of the item that each was written
for, and compares what it foretells with every item. An item's own texts are left out of what is foretold for them, in
closed form, so that nothing is found because it was learnt by heart. Of composed queries the reference's features stand
beside the words. It is there to rehearse with; encoders that were trained on millions of pairs are far better.

Sources: Saunders et al., Ridge Regression Learning Algorithm in Dual Variables, ICML 1998, equation 7; left-out
residuals as in Cook and Weisberg, Residuals and Influence in Regression, 1982, section 2.2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from annotators.base import Ranking, fingerprint, ids_of
from annotators.options import Options
from mitl.core.arrays import Floats
from mitl.core.pictures import FORMATS, upright
from mitl.datasets.images import picture_errors
from mitl.datasets.media import sound_samples, video_frames
from mitl.errors import AnnotatorError, DatasetError
from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem, PartKind

VERSION = 2
"""Raised when the same items give another ranking."""
RATE, WINDOW, HOP, BANDS = 8_000, 256, 128, 24
"""Of sounds: samples a second, samples of a spectrum and between two, and bands of frequencies."""
FRAMES, SIZE = 8, 48
"""Of videos: frames, and pixels across, of pictures too."""
_WORD = re.compile(r"\w+")
_MOST_TERMS, _MOST_TEXTS = 4_096, 3_000
"""Words and pairs of words that are told apart, and texts that it learns from."""
_COMPONENTS = 64
_TINY = 1e-9


def sound_features(samples: NDArray[np.float32]) -> Floats:
    """(F,) of one channel at 8 kHz: energy by band over the whole and its thirds, its changes, onsets, sweeps."""
    padded = np.pad(samples.astype(np.float64), (0, max(0, 4 * WINDOW - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW))) ** 2  # (T, 129)
    edges = np.unique(np.geomspace(1, power.shape[1], BANDS + 1).round().astype(int))
    bands = np.log1p(np.add.reduceat(power[:, : edges[-1]], edges[:-1] - edges[0], axis=1))  # (T, B)
    loud = bands.sum(axis=1)
    active = loud > np.median(loud) + 0.25 * np.ptp(loud) + _TINY
    begins = active[1:] & ~active[:-1]
    peak = power.argmax(axis=1)
    steps = np.where(active[1:] & active[:-1], np.diff(peak), 0)
    flat = np.exp(np.log(power + _TINY).mean(axis=1)) / (power.mean(axis=1) + _TINY)
    thirds = [part.max(axis=0) for part in np.array_split(bands, 3)]
    counted = [begins.sum(), active.mean(), loud.max(), loud.mean()]
    swept = [steps.clip(0, 6).sum(), steps.clip(-6, 0).sum(), np.abs(steps).clip(0, 6).sum()]
    noise = [flat[active].mean() if active.any() else 0.0, flat.max(), flat.min()]
    whole = [bands.mean(axis=0), bands.max(axis=0), np.median(bands, axis=0), bands.std(axis=0)]
    return np.concatenate([*whole, *thirds, counted, swept, noise])


def video_features(frames: NDArray[np.uint8]) -> Floats:
    """(F,) of (T, H, W, 3) frames: colours, a small picture, edges by their directions; of several, how things move."""
    values = frames.astype(np.float64) / 255
    first = values.mean(axis=0) if len(values) > 1 else values[0]
    coarse = (frames[len(frames) // 2] // 64).astype(int).reshape(-1, 3) @ (16, 4, 1)
    colours = np.sqrt(np.bincount(coarse, minlength=64) / len(coarse))
    step = SIZE // 6
    small = first.reshape(6, step, 6, step, 3).mean(axis=(1, 3)).ravel()
    grey = values[len(values) // 2].mean(axis=2)
    down, right = np.gradient(grey)
    strength = np.hypot(down, right)
    direction = ((np.arctan2(down, right) % np.pi) / np.pi * 12).astype(int).clip(0, 11)
    edges = np.bincount(direction.ravel(), strength.ravel(), 12) / grey.size
    of_picture = [colours, small, edges * 20, [strength.mean() * 10, strength.std() * 10]]
    if len(values) == 1:
        return np.concatenate(of_picture)
    ground = np.median(
        np.concatenate([values[0][0], values[0][-1], values[0][:, 0], values[0][:, -1]]), axis=0
    )
    drawn = (np.abs(values - ground).sum(axis=3) > 0.3).astype(np.float64)  # (T, H, W)
    mass = drawn.sum(axis=(1, 2)) + _TINY
    at = np.arange(SIZE)
    across = np.stack([drawn.sum(axis=1) @ at / mass, drawn.sum(axis=2) @ at / mass])  # (2, T)
    seen = mass > 4
    moved = across[:, seen][:, -1] - across[:, seen][:, 0] if seen.any() else np.zeros(2)
    changed = np.abs(np.diff(values, axis=0)).mean(axis=(1, 2, 3)) * 10
    moves = [moved / 4, np.abs(moved) / 4, [mass.std() / (mass.mean() + 1), changed.mean(), changed.max()]]
    return np.concatenate([*of_picture, *moves])


def _of_picture(path: Path) -> Floats:
    from PIL import Image

    try:
        with Image.open(path, formats=FORMATS) as picture:
            return video_features(np.asarray(upright(picture).resize((SIZE, SIZE)), np.uint8)[None])
    except picture_errors() as error:
        raise DatasetError(f"cannot be read: {error}") from error


_FEATURES: dict[PartKind, Callable[[Path], Floats]] = {
    PartKind.AUDIO: lambda path: sound_features(sound_samples(path, RATE)[0]),
    PartKind.VIDEO: lambda path: video_features(video_frames(path, FRAMES, SIZE)),
    PartKind.IMAGE: _of_picture,
}


class Signal:
    """Similarity is the cosine of an item's features and of those that a text foretells.

    Rankings are kept under the SHA-256 of every file's content, which is taken again where a file's size or times
    changed (``reads_pictures``).
    """

    kind = AnnotatorKind.RANKING
    reads_pictures = True

    def __init__(self, name: str, ridge: float) -> None:
        self.name = name
        self.fingerprint = fingerprint(signal=VERSION, ridge=ridge)
        self._ridge = ridge
        self._known: tuple[int, Floats] | None = None

    def ranking(
        self,
        direction: Direction,
        images: Sequence[ImageItem],
        captions: Sequence[CaptionItem],
        query_ids: Sequence[int],
        depth: int,
    ) -> Ranking:
        """Each query's ``depth`` nearest items of the other side.

        Raises:
            AnnotatorError: the items are texts, or a file is missing or cannot be decoded.
        """
        key = hash((tuple(ids_of(images).tolist()), tuple(ids_of(captions).tolist())))
        if self._known is None or self._known[0] != key:
            self._known = key, self._similarities(images, captions)
        similarities = self._known[1] if direction is Direction.I2T else self._known[1].T
        asking, ids = direction.ordered(ids_of(images), ids_of(captions))
        row_of = {item: row for row, item in enumerate(asking.tolist())}
        rows = similarities[[row_of[query] for query in query_ids]].astype(np.float32)
        best = np.stack([np.lexsort((ids, -row))[:depth] for row in rows])
        return Ranking(np.array(query_ids, np.int64), ids[best], np.take_along_axis(rows, best, axis=1))

    def _similarities(self, images: Sequence[ImageItem], captions: Sequence[CaptionItem]) -> Floats:
        """(I, C) cosines."""
        features = self._features(images)  # (I, D)
        place = {image.id: row for row, image in enumerate(images)}
        image_of = np.array([place[caption.image_id] for caption in captions])
        terms = _terms([caption.text for caption in captions])  # (C, V), unit rows
        references = None
        if any(caption.reference_id is not None for caption in captions):
            references = features[[place[caption.reference_id or caption.image_id] for caption in captions]]
        learnt = np.linspace(0, len(captions) - 1, min(len(captions), _MOST_TEXTS)).round().astype(int)
        kernel = _kernel(terms, terms[learnt], references, None if references is None else references[learnt])
        targets = features[image_of[learnt]]
        inverse = np.linalg.inv(kernel[learnt] + self._ridge * np.eye(len(learnt)))
        weights = inverse @ targets  # (L, D)
        foretold = kernel @ weights  # (C, D)
        for group in np.unique(image_of[learnt]):
            of_item = np.flatnonzero(image_of[learnt] == group)
            own = inverse[:, of_item] @ np.linalg.solve(inverse[np.ix_(of_item, of_item)], weights[of_item])
            foretold[image_of == group] -= kernel[image_of == group] @ own
        return _unit(features) @ _unit(foretold).T

    def _features(self, images: Sequence[ImageItem]) -> Floats:
        """(I, D) decorrelated features of unit variance."""
        rows = []
        for image in images:
            if image.kind not in _FEATURES:
                raise AnnotatorError(
                    f"annotator {self.name!r} listens and looks, but this data set has texts on both sides; use bm25, "
                    "minilm, or embeddings or rankings from files"
                )
            if image.path is None or not image.path.is_file():
                raise AnnotatorError(
                    f"annotator {self.name!r} needs the file of every item, and {image.external_id!r} has none at "
                    "hand; name their folder with `mitl init --images FOLDER` and the options of the first call"
                )
            try:
                rows.append(_FEATURES[image.kind](image.path))
            except DatasetError as error:
                raise AnnotatorError(
                    f"annotator {self.name!r} cannot use the file of {image.external_id!r}: {str(image.path)!r} {error}"
                ) from error
        table = np.stack(rows)
        table = (table - table.mean(axis=0)) / (table.std(axis=0) + 0.05 * table.std() + _TINY)
        left, scale, _ = np.linalg.svd(table, full_matrices=False)
        kept = min(_COMPONENTS, int((scale > 1e-3 * scale[0]).sum()) or 1)
        # The root of the scale in place of the scale: neither does one loud direction decide all, nor noise.
        weighted: Floats = left[:, :kept] * np.sqrt(len(table) * scale[:kept] / (scale[0] + _TINY))
        return weighted


def _terms(texts: Sequence[str]) -> Floats:
    """(C, V) words and pairs of neighbours that two texts or more have, rarer ones weigh more; rows of unit length."""
    told = []
    for text in texts:
        words = _WORD.findall(text.lower())
        told.append({*words, *(f"{a} {b}" for a, b in pairwise(words))})
    counts = Counter(term for terms in told for term in terms)
    # Equal counts by their letters, so that the same texts always give the same columns.
    usual = sorted((term for term, n in counts.items() if n > 1), key=lambda term: (-counts[term], term))
    column = {term: place for place, term in enumerate(usual[:_MOST_TERMS])}
    table = np.zeros((len(texts), max(1, len(column))))
    for row, terms in enumerate(told):
        for term in sorted(terms & column.keys()):
            table[row, column[term]] = np.log((1 + len(texts)) / (1 + counts[term])) + 1
    return _unit(table)


def _kernel(a: Floats, b: Floats, of_a: Floats | None, of_b: Floats | None) -> Floats:
    """(A, B) likeness of texts; with references that of both and of each, so that words can act on what is kept."""
    texts: Floats = a @ b.T
    if of_a is None or of_b is None:
        return texts
    pictures = _unit(of_a) @ _unit(of_b).T
    both: Floats = (texts + pictures + (1 + texts) * (1 + pictures)) / 4
    return both


def _unit(rows: Floats) -> Floats:
    """Rows of length 1; zeros stay."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = rows / np.where(length > _TINY, length, 1)
    return scaled


def build(options: Options) -> Signal:
    """From ``signal = true``, or the name signal, and ``ridge``.

    Raises:
        AnnotatorError: ``signal`` is false, or ``ridge`` is not above 0.
    """
    if not options.flag("signal", default=True):
        raise AnnotatorError(
            f"annotator {options.annotator!r} has signal = false, which makes none; leave it out or write true"
        )
    ridge = options.number("ridge", 1.0)
    if ridge <= 0:
        raise AnnotatorError(f"ridge of annotator {options.annotator!r} is {ridge}, but it must be above 0")
    return Signal(options.annotator, ridge)
