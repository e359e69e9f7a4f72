"""The encoder of a BERT network, read from its published weights; inference only."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

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
