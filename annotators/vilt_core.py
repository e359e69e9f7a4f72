"""ViLT's computation over its parameters: every item embedded once, every pair at the price of what is joint in it.

Exact savings against the module's own ``forward``: patches and words are embedded once an item, and so are their
queries, keys and values of the first layer, which they enter before they have met; of the last layer only the
[CLS] token is read, so its keys and values are never formed (see ``_keyed``); nothing is padded. Patches keep their
order; the module's ``forward`` draws a random one, which changes nothing but the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotators.linear_kernels import Linear, MakeLinear, PlainLinear, has_tiles, softmax

if TYPE_CHECKING:
    from transformers import ViltForImageAndTextRetrieval
    from transformers.models.vilt.modeling_vilt import ViltLayer

Side = Mapping[str, Tensor]
"""Embedded items: ``state`` (B, N, D), and perhaps what is false where there is padding: ``words`` (B, N) of captions,
``patches`` (B, N) of images."""

TEXT, IMAGE = 0, 1
"""Modality types."""


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A LayerNorm over the last axis; its sums are float32 whatever comes in."""

    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, module: nn.LayerNorm, dtype: torch.dtype = torch.float32) -> Norm:
        """The module's; on CUDA the weights must be of the dtype that comes in, on the CPU they stay float32."""
        weight, bias = module.weight, module.bias
        return (
            cls(weight, bias, module.eps)
            if weight.device.type == "cpu"
            else cls(weight.to(dtype), bias.to(dtype), module.eps)
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Of the shape of x."""
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One pre-norm block; ``qkv`` maps to queries, keys and values side by side."""

    before: Norm
    qkv: Linear
    output: Linear
    after: Norm
    up: Linear
    down: Linear

    @classmethod
    def of(cls, layer: ViltLayer, dtype: torch.dtype, make: MakeLinear) -> Layer:
        """The module's parameters in ``dtype``, for ``make``'s kernels."""
        parts = _query_key_value(layer)
        weight, bias = (torch.cat([getattr(part, name) for part in parts]) for name in ("weight", "bias"))

        def linear(module: nn.Linear) -> Linear:
            return make(module.weight.to(dtype), module.bias.to(dtype))

        return cls(
            Norm.of(layer.layernorm_before, dtype),
            make(weight.to(dtype), bias.to(dtype)),
            linear(layer.attention.output.dense),
            Norm.of(layer.layernorm_after, dtype),
            linear(layer.intermediate.dense),
            linear(layer.output.dense),
        )

    def entered(self, x: Tensor) -> Tensor:
        """Queries, keys and values of the states x."""
        return self.qkv(self.before(x))

    def left(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's states, of the states x that entered and what they attended to."""
        # oneDNN's sums within products cost half a millisecond more whatever the size (measured); the same bits in
        # float32.
        x = self.output(attended).add_(x)
        return self.down(self.up.gelu(self.after(x))).add_(x)


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """Where the tokens (T,) of P pairs are, each of at most N tokens: sizes that are always the same on a card."""

    first: Tensor
    """(P,) each pair's first token; of places that no pair took, one behind the last."""
    places: Tensor
    """(P, N) its tokens, behind its end its first one again."""
    seen: Tensor
    """(P, 1, 1, N) which of them are its own."""
    back: Tensor
    """(T,) where each token is in ``places``, flat; 0 for those of no pair."""
    ends: Tensor
    """(P + 1,) int32, where pairs begin and end."""

    @classmethod
    def of(cls, lengths: Tensor, tokens: int, most: int) -> Filling:
        """Of pairs of these lengths (P,), 0 for places that no pair took, one behind another in ``tokens`` tokens."""
        ends = F.pad(lengths.cumsum(0), (1, 0))
        first = ends[:-1].clamp(max=tokens - 1)
        step = torch.arange(most, device=lengths.device)
        seen = step < lengths[:, None]
        places = torch.where(seen, first[:, None] + step, first[:, None])
        # Tokens of no pair are written behind the end, by whichever comes last.
        back = torch.zeros(tokens + 1, dtype=torch.long, device=lengths.device)
        back[torch.where(seen, places, tokens).flatten()] = torch.arange(seen.numel(), device=lengths.device)
        return cls(first, places, seen[:, None, None], back[:tokens], ends.int())

    def attend(self, qkv: Tensor, heads: int) -> Tensor:
        """Multi-head attention (T, D) of queries, keys and values side by side (T, 3 D), each pair's among its own."""
        if qkv.device.type == "cuda" and qkv.dtype != torch.float32 and (packed := _varlen()) is not None:
            q, k, v = qkv.view(len(qkv), 3, heads, -1).unbind(1)
            most = self.places.shape[1]
            return packed(q, k, v, self.ends, self.ends, most, most).flatten(1)
        return attend(qkv[self.places], heads, self.seen).flatten(0, 1)[self.back]


class ViltCore:
    """The network's parameters, arranged for the pair; made again after each change of them.

    Args:
        dtype: of the joint layers; embeddings, norms, the last layer and the head stay float32.
        make: kernels of the joint layers' linear maps.
    """

    def __init__(
        self,
        network: ViltForImageAndTextRetrieval,
        dtype: torch.dtype = torch.float32,
        make: MakeLinear = PlainLinear,
    ) -> None:
        vilt = network.vilt
        self._embeddings = vilt.embeddings
        self._heads: int = network.config.num_attention_heads
        self._dtype = dtype
        self.fills = self._embeddings.cls_token.device.type != "cpu"
        """Whether pairs that are ``packed`` come in a ``Filling``: a card's products then have one size."""
        self.token_bytes: int = network.config.intermediate_size * dtype.itemsize
        """What the widest state of a token takes."""
        *joint, self._last = cast("Iterable[ViltLayer]", vilt.encoder.layer)
        self._layers = [Layer.of(layer, dtype, make) for layer in joint]
        assert vilt.pooler is not None
        self._norm, self._pooler, self._rank = vilt.layernorm, vilt.pooler.dense, network.rank_output

    def images(self, pixels: Tensor) -> dict[str, Tensor]:
        """Images of one size (B, 3, H, W) to ``state`` (B, 1 + h w, D): class token and patches, embedded."""
        embeddings = self._embeddings
        projection = embeddings.patch_embeddings.projection
        side = projection.kernel_size[0]
        count, channels, height, width = pixels.shape
        rows, columns = height // side, width // side
        # A product of patches, for convolutions may be rounded to TF32 on CUDA.
        patches = pixels.view(count, channels, rows, side, columns, side).permute(0, 2, 4, 1, 3, 5)
        cells = F.linear(
            patches.reshape(count, rows * columns, -1), projection.weight.flatten(1), projection.bias
        )
        first = embeddings.cls_token.expand(count, -1, -1)
        state = torch.cat([first, cells], 1) + self._positions(rows, columns)
        return {"state": state + embeddings.token_type_embeddings.weight[IMAGE]}

    def captions(self, tokens: Tensor, words: Tensor | None = None) -> dict[str, Tensor]:
        """Word pieces (B, L) to ``state`` (B, L, D); ``words`` is handed on."""
        embeddings, text = self._embeddings, self._embeddings.text_embeddings
        state = text.word_embeddings(tokens) + text.token_type_embeddings.weight[0]
        state = Norm.of(text.LayerNorm)(state + text.position_embeddings.weight[: tokens.shape[1]])
        embedded = {"state": state + embeddings.token_type_embeddings.weight[TEXT]}
        return embedded if words is None else {**embedded, "words": words}

    def entered(self, side: Side) -> dict[str, Tensor]:
        """Embedded items with ``qkv`` (B, N, 3 D) of the first layer, which do not depend on the other side."""
        state = side["state"].to(self._dtype)
        embedded = {**side, "state": state}
        return {**embedded, "qkv": self._layers[0].entered(state)} if self._layers else embedded

    def score(self, images: Side, captions: Side, i: Tensor, c: Tensor) -> Tensor:
        """(P,) float32: the rank head's logit for each pair of image row i and caption row c."""
        return self.joint(self.entered(images), self.entered(captions), i, c)

    def joint(self, images: Side, captions: Side, i: Tensor, c: Tensor) -> Tensor:
        """``score`` for items that have ``entered``."""

        def pairs(name: str) -> Tensor:
            return torch.cat([captions[name][c], images[name][i]], 1)

        seen = None
        if "words" in captions or "patches" in images:
            sides = (captions, "words", c), (images, "patches", i)
            seen = torch.cat([_there(*side) for side in sides], 1)[:, None, None]  # (P, 1, 1, N)
        x = pairs("state")
        if self._layers:
            x = self._mixed(x, pairs("qkv"), seen)
        x, h = self._read(x)
        return self._logit(x[:, 0], self._means(self._keyed(h[:, 0]), h, seen))

    def packed(self, items: Side, rows: Tensor, lengths: list[int], filling: Filling | None = None) -> Tensor:
        """``score`` of pairs whose tokens lie one behind another.

        Args:
            items: tokens of items that have ``entered``: ``state`` (U, D) and ``qkv`` (U, 3 D).
            rows: (T,) the tokens of all pairs, a caption's before its image's.
            lengths: how many of them each pair has.
            filling: where they are where the core ``fills``; scores of its (P,) pairs come back.
        """
        x, qkv = items["state"][rows], items["qkv"][rows] if self._layers else None
        if filling is not None:
            if qkv is not None:
                x = self._mixed(x, qkv, filling)
            x, h = self._read(x)
            return self._logit(
                x[filling.first], self._means(self._keyed(h[filling.first]), h[filling.places], filling.seen)
            )
        if qkv is not None:
            x = self._mixed(x, qkv, None, lengths)
        x, h = self._read(x)
        first = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        alike = _alike(h, lengths)
        keys = torch.split(_in_full(self._keyed, h[first]), [len(run) for run in alike])
        means = [self._means(key, run) for key, run in zip(keys, alike, strict=True)]
        return _in_full(self._logit, x[first], torch.cat(means))

    def _mixed(
        self, x: Tensor, qkv: Tensor, seen: Tensor | Filling | None, lengths: list[int] | None = None
    ) -> Tensor:
        """States (P, N, D), or (T, D) of pairs of these lengths or of a filling, behind all layers but the last."""
        for place, layer in enumerate(self._layers):
            met = layer.entered(x) if place else qkv
            if isinstance(seen, Filling):
                attended = seen.attend(met, self._heads)
            elif lengths is None:
                attended = attend(met, self._heads, seen)
            else:
                attended = torch.cat([attend(run, self._heads).flatten(0, 1) for run in _alike(met, lengths)])
            x = layer.left(x, attended)
        return x

    def _positions(self, rows: int, columns: int) -> Tensor:
        """(1, 1 + rows columns, D): the learnt square resized bilinearly, corner on corner."""
        learnt = self._embeddings.position_embeddings
        side = round((learnt.shape[1] - 1) ** 0.5)
        square = learnt[:, 1:].transpose(1, 2).reshape(1, -1, side, side)
        resized = F.interpolate(square, size=(rows, columns), mode="bilinear", align_corners=True)
        return torch.cat([learnt[:, :1], resized.flatten(2).transpose(1, 2)], 1)

    # Behind the last layer only the first token is read. q . (W_k h + b_k) = (W_k^T q) . h + q . b_k, and the second
    # term is the same for all keys; the mean of W_v h + b_v under weights that sum to 1 is W_v of the mean of h, and
    # b_v. So one query costs two products with h per head instead of the keys and values of all tokens.

    def _read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's states in float32, and normed."""
        x = x.float()
        return x, Norm.of(self._last.layernorm_before)(x)

    def _keyed(self, h: Tensor) -> Tensor:
        """W_k^T q (P, heads, D) of the first tokens' normed states (P, D), over the root of a head's width."""
        query, key, _ = _query_key_value(self._last)
        q = query(h).view(len(h), self._heads, -1)  # (P, heads, d)
        weight = key.weight.view(self._heads, -1, h.shape[1])
        return torch.einsum("phd,hde->phe", q / q.shape[2] ** 0.5, weight)

    def _means(self, keyed: Tensor, h: Tensor, seen: Tensor | None = None) -> Tensor:
        """(P, heads, D): what each head of the first token sees of the normed states h (P, N, D)."""
        weights = keyed @ h.transpose(1, 2)
        if seen is not None:
            weights = weights.masked_fill(~seen[:, 0], -torch.inf)
        return weights.softmax(-1) @ h

    def _logit(self, x: Tensor, means: Tensor) -> Tensor:
        """(P,) of the first tokens' states (P, D) before the last layer and what they see there."""
        layer = self._last
        value = _query_key_value(layer)[2]
        weight = value.weight.view(self._heads, -1, x.shape[1])
        attended = torch.einsum("phe,hde->phd", means, weight).flatten(1)
        state = x + layer.attention.output.dense(attended + value.bias)
        up = F.gelu(layer.intermediate.dense(Norm.of(layer.layernorm_after)(state)))
        pooled = torch.tanh(self._pooler(Norm.of(self._norm)(state + layer.output.dense(up))))
        logit: Tensor = self._rank(pooled)[:, 0]
        return logit


def attend(qkv: Tensor, heads: int, seen: Tensor | None = None) -> Tensor:
    """Multi-head attention (P, N, D) of queries, keys and values side by side (P, N, 3 D); unseen keys left out."""
    count, length, width = qkv.shape
    q, k, v = qkv.view(count, length, 3, heads, -1).permute(2, 0, 3, 1, 4)  # (P, heads, N, d) each
    if qkv.dtype == torch.bfloat16 and qkv.device.type == "cpu" and seen is None and not has_tiles():
        # Without AMX oneDNN's batched products beat torch's fused kernel here, and keys copied beforehand those copied
        # by oneDNN (measured: a tenth of the whole network; with AMX the fused kernel wins by as much).
        weights = (q * q.shape[3] ** -0.5) @ k.contiguous().transpose(2, 3)
        mixed = softmax(weights) @ v
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    together: Tensor = mixed.transpose(1, 2).reshape(count, length, width // 3)
    return together


def _alike(x: Tensor, lengths: list[int]) -> list[Tensor]:
    """Views (P, N, D) of the tokens (T, D) of neighbouring pairs of one length, as many as a core's cache holds."""
    runs = []
    for length, pairs in groupby(lengths):
        count, most = len(list(pairs)), max(1, _CACHE_BYTES // (length * x[0].nbytes))
        runs += [(length, min(most, count - start)) for start in range(0, count, most)]
    parts = torch.split(x, [length * count for length, count in runs])
    return [part.view(count, length, -1) for part, (length, count) in zip(parts, runs, strict=True)]


_CACHE_BYTES = 1 << 19
"""Of what attends together on the CPU: small networks save calls, large ones want their numbers near."""
_TOGETHER = 32
"""Pairs that go through the last layer and the head at once on the CPU, one token each."""


def _in_full(of: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """``of`` rows, ``_TOGETHER`` at once, filled up by repeats: how few rows are summed hangs on how many they are."""
    count = len(rows[0])
    places = torch.arange(-(-count // _TOGETHER) * _TOGETHER).clamp(max=count - 1)
    parts = [of(*(table[part] for table in rows)) for part in torch.split(places, _TOGETHER)]
    return torch.cat(parts)[:count]


def _there(side: Side, name: str, rows: Tensor) -> Tensor:
    """(P, N): which states of these rows are no padding; all where the side does not say."""
    if name in side:
        return side[name][rows]
    return torch.ones(len(rows), side["state"].shape[1], dtype=torch.bool, device=rows.device)


@cache
def _varlen() -> Callable[..., Tensor] | None:
    """Attention of rows one behind another; None before torch 2.10. Torch loads its compiler for it, in a second."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return cast("Callable[..., Tensor]", varlen_attn)


def _query_key_value(layer: ViltLayer) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    attention = layer.attention.attention
    return attention.query, attention.key, attention.value
