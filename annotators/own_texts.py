"""A sentence encoder between the texts of both sides; its weights come with a package, so it needs no file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from annotators.base import Encoded, InnerProducts, fingerprint, ids_of
from annotators.catalog import MINILM
from annotators.devices import device_of
from annotators.options import Options
from annotators.sentences import SentenceEncoder, shared_encoder
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

VERSION = 1
"""Raised when the same texts give other vectors."""


class OwnTexts(InnerProducts):
    """Similarity is the cosine of two texts' vectors; a document's title and text are read as one.

    Source: Reimers and Gurevych, Sentence-BERT, 2019; what is longer than the encoder reads is cut there.
    """

    reusable_encodings = True
    reads_pictures = False

    def __init__(self, name: str, encoder: SentenceEncoder, threads: int) -> None:
        self.name = name
        self.fingerprint = fingerprint(own_texts=VERSION, minilm=encoder.sha256)
        self._encoder, self._threads = encoder, threads
        self.device = encoder.device

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """The documents' texts; AnnotatorError where the items are pictures."""
        if not all(item.texts for item in items):
            raise AnnotatorError(
                f"annotator {self.name!r} compares texts, but the images of this data set have none; use it where both "
                "sides are texts, or machine captions by `text_model`"
            )
        texts = ["\n".join(item.texts) for item in items]
        return Encoded("image", ids_of(items), {"embedding": self._encoder.vectors(texts, self._threads)})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """The queries' texts."""
        texts = [item.text for item in items]
        return Encoded("caption", ids_of(items), {"embedding": self._encoder.vectors(texts, self._threads)})


def build(options: Options) -> OwnTexts:
    """From ``minilm = true``, or the name minilm, and ``device`` and ``threads``."""
    if not options.flag(MINILM, default=True):
        raise AnnotatorError(
            f"annotator {options.annotator!r} has minilm = false, which makes none; leave it out or write true"
        )
    encoder = shared_encoder(str(device_of(options)))
    return OwnTexts(options.annotator, encoder, options.whole("threads", os.cpu_count() or 1))
