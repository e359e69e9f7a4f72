"""Caption pivots: an image is represented by what a captioning system wrote about it.

An image query or gallery image without a machine caption (the system skipped it) has the lowest similarity, -1,
with every caption, so it is never preferred to one that has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded, InnerProducts, fingerprint, ids_of
from annotators.catalog import TEXT_MODELS
from annotators.options import Options
from annotators.registry import pivot_parts
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem

if TYPE_CHECKING:
    from annotators.sentences import SentenceEncoder


MachineCaptions = dict[str, str | None]
"""External image id -> caption; None where the system skipped the image."""


def read_machine_captions(path: Path, captioner: str) -> MachineCaptions:
    """The captions of one system: the column ``captioner`` of a Parquet file with a column ``image_id``, or a JSON
    list of ``{"image_id": …, "caption": …}``, which holds one system. An empty caption counts as none.

    Raises:
        AnnotatorError: unreadable, a missing column or key, an image named twice, no caption at all.
    """
    readers = {".parquet": _from_parquet, ".json": _from_json}
    reader = readers.get(path.suffix)
    if reader is None:
        raise AnnotatorError(
            f"{str(path)!r} is not a file of machine captions; it should end in .parquet or .json"
        )
    captions: MachineCaptions = {}
    for image_id, text in reader(path, captioner):
        if text is not None and not isinstance(text, str):
            raise AnnotatorError(
                f"the caption of image {image_id!r} in {str(path)!r} is {text!r}, not a text"
            )
        if image_id in captions:
            raise AnnotatorError(f"{str(path)!r} has image {image_id!r} twice")
        captions[image_id] = text.strip() or None if text else None
    if not any(captions.values()):
        raise AnnotatorError(f"{str(path)!r} holds no caption of {captioner!r}")
    return captions


def _from_parquet(path: Path, captioner: str) -> list[tuple[str, object]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        if "image_id" not in names:
            raise AnnotatorError(f"{str(path)!r} lacks the column 'image_id'; it holds {', '.join(names)}")
        if captioner not in names or captioner == "image_id":
            captioners = ", ".join(name for name in names if name != "image_id")
            raise AnnotatorError(f"{str(path)!r} has no captioner {captioner!r}; it holds {captioners}")
        table = pq.read_table(path, columns=["image_id", captioner])
    except (pa.ArrowInvalid, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as Parquet: {error}") from error
    ids, texts = table["image_id"].to_pylist(), table[captioner].to_pylist()
    return [(str(image_id), text) for image_id, text in zip(ids, texts, strict=True)]


def _from_json(path: Path, captioner: str) -> list[tuple[str, object]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as JSON: {error}") from error
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and "image_id" in row and "caption" in row for row in rows
    ):
        raise AnnotatorError(f'{str(path)!r} should be a list of {{"image_id": …, "caption": …}}')
    return [(str(row["image_id"]), row["caption"]) for row in rows]


LATENT_WIDTH = 256
SEED = 0
"""Of the search for latent directions."""


class WeightedWords:
    """Sparse unit vectors over words and word pairs: 1 + log(count), times the inverse document frequency."""

    def __init__(self, longest: int = 2) -> None:
        """``longest``: so many neighbouring words are counted together."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(
            ngram_range=(1, longest), sublinear_tf=True, norm="l2", dtype=np.float64
        )

    def fit(self, texts: Sequence[str]) -> None:
        """Count in how many of these texts each word stands; their order does not matter."""
        self._vectorizer.fit(texts)

    def vectors(self, texts: Sequence[str]) -> Any:
        """(N, vocabulary) unit rows, or a zero row without a known word: float64, dense or sparse."""
        return self._vectorizer.transform(texts)

    def products(self, queries: Any, gallery: Any) -> NDArray[np.float64]:
        """(Q, G); each sum runs over the query's words in one order, so blocks of any size agree."""
        dense: NDArray[np.float64] = (queries @ gallery.T).toarray()
        return dense


class LatentWords(WeightedWords):
    """Latent semantic analysis: dense unit vectors of at most 256 numbers; fewer where the texts hold fewer words.

    Source: Deerwester et al., Indexing by latent semantic analysis, JASIS 1990.
    """

    def __init__(self) -> None:
        super().__init__(longest=1)
        self._svd: Any = None

    def fit(self, texts: Sequence[str]) -> None:
        """Find the directions of these texts, from a fixed seed."""
        from sklearn.decomposition import TruncatedSVD

        # The decomposition's rounding depends on the order of rows.
        weighted = self._vectorizer.fit_transform(sorted(texts))
        # The solver needs a rank below both sides.
        width = min(LATENT_WIDTH, min(weighted.shape) - 1)
        if width >= 1:
            self._svd = TruncatedSVD(width, random_state=SEED).fit(weighted)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """(N, width) rows; of a single text or word there are no directions, and words are compared as they are."""
        weighted = self._vectorizer.transform(texts)
        if self._svd is None:
            whole: NDArray[np.float64] = weighted.toarray()
            return whole
        latent: NDArray[np.float64] = self._svd.transform(weighted)
        length = np.linalg.norm(latent, axis=1, keepdims=True)
        unit: NDArray[np.float64] = latent / np.where(length > 1e-12, length, np.inf)
        return unit

    def products(self, queries: Any, gallery: Any) -> NDArray[np.float64]:
        """(Q, G) in float64."""
        exact: NDArray[np.float64] = queries @ gallery.T
        return exact


LOWEST = -1.0
"""Similarity of an image without a machine caption: the least that a cosine can be."""
VERSION = 1
"""Raised when the same inputs give other similarities, so that old rankings are not taken for new ones."""


class WordPivot:
    """Caption pivot over words: TF-IDF or its latent directions, cosine of the two texts' vectors.

    The word weights are learnt once, at the first similarities, from the captions encoded until then and all of
    the captioner's captions in the file: encode the whole caption set, then take rows of it as queries. So the
    weights do not depend on which queries are asked. ``Encoded`` holds the texts' places in a table that the
    annotator keeps, since vectors over a vocabulary are sparse.
    """

    kind = AnnotatorKind.PAIRWISE

    def __init__(
        self, name: str, captions: MachineCaptions, path: Path, model: WeightedWords, key: str
    ) -> None:
        self.name = name
        self.fingerprint = _fingerprint(captions, key)
        self._captions, self._path, self._model = captions, path, model
        self._place_of: dict[str, int] = {}
        self._vectors: Any = None
        self._fitted = False

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """The images' machine captions; AnnotatorError where the file does not know an image."""
        return self._encoded("image", items, _texts_of(items, self._captions, self._path))

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """The captions' texts."""
        return self._encoded("caption", items, [item.text for item in items])

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) cosines, -1 where an image has no caption."""
        texts = list(self._place_of)
        if not self._fitted:
            self._fit({*texts, *(text for text in self._captions.values() if text)})
        if self._vectors is None or self._vectors.shape[0] != len(texts):
            self._vectors = self._model.vectors(texts)
        vectors = self._vectors
        rows, columns = queries.arrays["place"], gallery.arrays["place"]
        # A missing caption (-1) reads some row here and is overwritten below.
        exact = self._model.products(vectors[rows], vectors[columns])
        exact[rows < 0, :] = LOWEST
        exact[:, columns < 0] = LOWEST
        return exact.astype(np.float32)

    def _encoded(self, modality: Any, items: Sequence[Any], texts: Sequence[str | None]) -> Encoded:
        place_of = self._place_of
        places = [-1 if text is None else place_of.setdefault(text, len(place_of)) for text in texts]
        return Encoded(modality, ids_of(items), {"place": np.array(places, dtype=np.int64)})

    def _fit(self, texts: set[str]) -> None:
        try:
            self._model.fit(sorted(texts))
        except ValueError as error:
            raise AnnotatorError(f"annotator {self.name!r} cannot weigh these texts: {error}") from error
        self._fitted = True


class SentencePivot(InnerProducts):
    """Caption pivot over a trained sentence encoder; similarity is the cosine.

    The vectors have one coordinate more than the encoder's: 1 for a caption, 0 for an image. An image without a
    machine caption is -1 there and 0 elsewhere, which makes its inner product with every caption -1.
    """

    reusable_encodings = True
    reads_pictures = False

    def __init__(
        self, name: str, captions: MachineCaptions, path: Path, encoder: SentenceEncoder, threads: int
    ) -> None:
        self.name = name
        self.fingerprint = _fingerprint(captions, f"minilm {encoder.sha256}")
        self._captions, self._path, self._encoder, self._threads = captions, path, encoder, threads
        self.device = encoder.device

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """The images' machine captions as vectors; AnnotatorError where the file does not know an image."""
        texts = _texts_of(items, self._captions, self._path)
        vectors = self._vectors([text or "" for text in texts])
        silent = np.array([text is None for text in texts], dtype=bool)
        vectors[silent] = 0.0
        vectors[silent, -1] = LOWEST
        return Encoded("image", ids_of(items), {"embedding": vectors})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """The captions as vectors."""
        vectors = self._vectors([item.text for item in items])
        vectors[:, -1] = 1.0
        return Encoded("caption", ids_of(items), {"embedding": vectors})

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        unit = self._encoder.vectors(texts, self._threads)
        return np.concatenate([unit, np.zeros((len(unit), 1), dtype=np.float32)], axis=1)


def build(options: Options) -> WordPivot | SentencePivot:
    """From ``captions = PATH`` and, unless the annotator's name tells them, ``captioner`` and ``text_model``."""
    captioner, text_model = pivot_parts(options.annotator) or (None, None)
    captioner = options.text("captioner", captioner)
    text_model = options.text("text_model", text_model, choices=TEXT_MODELS)
    path = options.path("captions")
    captions = read_machine_captions(path, captioner)
    if text_model in ("tfidf", "lsa"):
        model = WeightedWords() if text_model == "tfidf" else LatentWords()
        return WordPivot(options.annotator, captions, path, model, text_model)
    from annotators.devices import device_of
    from annotators.sentences import shared_encoder

    threads = options.whole("threads", os.cpu_count() or 1)
    encoder = shared_encoder(str(device_of(options)))
    return SentencePivot(options.annotator, captions, path, encoder, threads)


def _texts_of(items: Sequence[ImageItem], captions: MachineCaptions, path: Path) -> list[str | None]:
    missing = [item.external_id for item in items if item.external_id not in captions]
    if missing:
        raise AnnotatorError(
            f"{str(path)!r} lacks {len(missing)} of {len(items)} images; first: {missing[0]!r}"
        )
    return [captions[item.external_id] for item in items]


def _fingerprint(captions: MachineCaptions, text_model: str) -> str:
    return fingerprint(captions=captions, text_model=text_model, version=VERSION)
