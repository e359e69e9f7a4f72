"""Pieces that the small networks share. Shapes: B items, L places (grid cells or words), D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotators.minis.vocabulary import PAD


def to_pixels(squares: Tensor) -> Tensor:
    """(B, S, S, 3) bytes as (B, 3, S, S) float32 from -1 to 1, laid out for convolutions."""
    pixels = squares.permute(0, 3, 1, 2).to(torch.float32) / 127.5 - 1
    return pixels.contiguous(memory_format=torch.channels_last)


class Residual(nn.Module):
    """Two 3 x 3 convolutions that halve the picture, around a shortcut."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = nn.Conv2d(inside, outside, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inside, S, S) -> (B, outside, S/2, S/2)."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Backbone(nn.Module):
    """A small residual network: 64 pixels a side become 8 x 8 cells of ``width`` numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width // 4, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 4)
        self.layer1 = Residual(width // 4, width // 2)
        self.layer2 = Residual(width // 2, width)

    def forward(self, squares: Tensor) -> Tensor:
        """(B, 64, 64, 3) bytes -> (B, width, 8, 8)."""
        x = F.relu(self.bn1(self.conv1(to_pixels(squares))))
        y: Tensor = self.layer2(self.layer1(x))
        return y


def cells_of(grid: Tensor) -> Tensor:
    """(B, D, H, W) -> (B, H * W, D), row by row."""
    return grid.flatten(2).transpose(1, 2)


class WordGru(nn.Module):
    """A GRU over words, in one direction or both, that ends at each text's last word.

    All texts run over all places and the right state is picked afterwards, so that the sums of one text do not
    depend on its neighbours' lengths.
    """

    def __init__(self, inside: int, hidden: int, *, both: bool) -> None:
        super().__init__()
        self.forwards = nn.GRU(inside, hidden, batch_first=True)
        self.backwards = nn.GRU(inside, hidden, batch_first=True) if both else None

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, inside) and (B,) -> (B, hidden), or (B, 2 * hidden) for both directions."""
        ahead = _at_last(self.forwards(words)[0], lengths)
        if self.backwards is None:
            return ahead
        places = torch.arange(words.shape[1], device=words.device)
        turned = (lengths[:, None] - 1 - places).clamp(min=0)  # (B, L)
        reverse = words.gather(1, turned[..., None].expand_as(words))
        return torch.cat([ahead, _at_last(self.backwards(reverse)[0], lengths)], 1)


def _at_last(states: Tensor, lengths: Tensor) -> Tensor:
    rows = torch.arange(len(states), device=states.device)
    return states[rows, lengths - 1]


def lengths_of(tokens: Tensor) -> Tensor:
    """(B, L) -> (B,): how many places are not padding."""
    return (tokens != PAD).sum(1)


class AttentionPooling(nn.Module):
    """K weighted sums over places, the weights from a small network on each place.

    Source: Lin et al., A structured self-attentive sentence embedding, ICLR 2017, as PVSE uses it.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(width, width // 2, bias=False)
        self.w_2 = nn.Linear(width // 2, heads, bias=False)

    def forward(self, places: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, K, D); places where the mask (B, L) is true get no weight."""
        scores = self.w_2(torch.tanh(self.w_1(places)))  # (B, L, K)
        if mask is not None:
            scores = scores.masked_fill(mask[..., None], -torch.inf)
        pooled: Tensor = scores.softmax(1).transpose(1, 2) @ places
        return pooled


class Pie(nn.Module):
    """Local detail added to a global vector, once a head: LayerNorm(global + sigmoid(FC(attended)))."""

    def __init__(self, places: int, width: int, heads: int) -> None:
        super().__init__()
        self.attention = AttentionPooling(places, heads)
        self.fc = nn.Linear(places, width)
        self.layer_norm = nn.LayerNorm(width)

    def forward(self, whole: Tensor, places: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, width) and (B, L, places) -> (B, K, width)."""
        detail = torch.sigmoid(self.fc(self.attention(places, mask)))
        fused: Tensor = self.layer_norm(whole[:, None] + detail)
        return fused


class Block(nn.Module):
    """A transformer block with the norms before: attention, then a two-layer network."""

    def __init__(self, width: int, heads: int, expansion: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, expansion * width)
        self.fc2 = nn.Linear(expansion * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, L, D); places where the mask (B, L) is true are not attended to."""
        return self.rest(x, *self.keys(x), mask)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (B, L, D) of the places, which depend on each place alone."""
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        return q, k, v

    def rest(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attention among the places, which may be more than those of ``x`` and ``q``, and the rest."""
        allowed = None if mask is None else ~mask[:, None, None]
        q, k, v = (t.view(*t.shape[:2], self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, allowed)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        z: Tensor = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return z


class PatchStem(nn.Module):
    """Patches of 8 x 8 pixels as tokens, by two strided convolutions whose windows overlap a little."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width // 2, 6, stride=4, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 2)
        self.conv2 = nn.Conv2d(width // 2, width, 4, stride=2, padding=1)

    def forward(self, squares: Tensor) -> Tensor:
        """(B, 64, 64, 3) bytes -> (B, 64, width)."""
        return cells_of(self.conv2(F.relu(self.bn1(self.conv1(to_pixels(squares))))))
