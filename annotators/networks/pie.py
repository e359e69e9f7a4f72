"""Attention pooling, the PIE block and the recurrent network that PVSE and PCME share.

Shapes: B items, L places (grid cells or words), D their width, K vectors per item.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class AttentionPooling(nn.Module):
    """K weighted sums of the places; a small network gives the weights: softmax(W2 tanh(W1 X^T)).

    Source: Lin et al., A structured self-attentive sentence embedding, ICLR 2017, section 2; half the
    width inside as in PVSE's code.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.w_1 = nn.Linear(width, width // 2, bias=False)
        self.w_2 = nn.Linear(width // 2, heads, bias=False)
        nn.init.xavier_uniform_(self.w_1.weight)
        nn.init.xavier_uniform_(self.w_2.weight)

    def forward(self, places: Tensor, padding: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, K, D); places where ``padding`` (B, L) is true get no weight."""
        scores = self.w_2(torch.tanh(self.w_1(places)))  # (B, L, K)
        if padding is not None:
            scores = scores.masked_fill(padding[..., None], -torch.inf)
        pooled: Tensor = scores.softmax(1).transpose(1, 2) @ places
        return pooled


class Pie(nn.Module):
    """Polysemous instance embedding: local detail joins the whole, LayerNorm(whole + sigmoid(FC(attended))).

    Source: Song and Soleymani, PVSE, CVPR 2019, its PIE-Net.
    """

    def __init__(self, places: int, width: int, heads: int) -> None:
        super().__init__()
        self.attention = AttentionPooling(places, heads)
        self.fc = nn.Linear(places, width)
        self.layer_norm = nn.LayerNorm(width)
        xavier(self.fc)

    def forward(self, whole: Tensor, places: Tensor, padding: Tensor | None = None) -> Tensor:
        """(B, width) and (B, L, D) -> (B, K, width)."""
        detail = torch.sigmoid(self.fc(self.attention(places, padding)))
        fused: Tensor = self.layer_norm(whole[:, None] + detail)
        return fused


class SentenceGru(nn.GRU):
    """One layer of gated recurrent units in both directions over the words of each text, and its one vector.

    The two directions stand side by side in the vector, forward first. Texts of one batch may differ in length;
    what lies past a text's end is not read.
    """

    def __init__(self, word: int, width: int) -> None:
        super().__init__(word, width // 2, batch_first=True, bidirectional=True)

    def last_position(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, word) and (B,) -> (B, width): the output at each text's last word.

        The backward half has read that one word only. PVSE calls this its legacy mode, in which all released
        weights were trained; PCME has no other.
        """
        states, _ = self._run(words, lengths)
        rows = torch.arange(len(states), device=states.device)
        return states[rows, lengths.to(states.device) - 1]

    def last_states(self, words: Tensor, lengths: Tensor) -> Tensor:
        """(B, L, word) and (B,) -> (B, width): what either direction holds after its last word."""
        _, final = self._run(words, lengths)
        return torch.cat([final[0], final[1]], 1)

    def _run(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        # Packing wants the lengths on the CPU, wherever the words are.
        packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, final = self(packed)
        return pad_packed_sequence(states, batch_first=True)[0], final


def padding_of(lengths: Tensor, places: int) -> Tensor:
    """(B,) -> (B, places): true past the end of each text."""
    return torch.arange(places, device=lengths.device) >= lengths[:, None]


def xavier(linear: nn.Linear) -> None:
    """Start a linear layer with Xavier's uniform weights and no bias, as PVSE's code does."""
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
