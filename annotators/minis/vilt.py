"""ViLT-mini: patches and words in one transformer, a score for each pair."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotators.minis import losses
from annotators.minis.layers import Block, PatchStem
from annotators.minis.network import MiniNetwork, Side
from annotators.minis.vocabulary import PAD
from mitl.records import AnnotatorKind

PATCHES = 64
PIECE = 256
"""Pairs scored at a time."""
ROUND = 4
NEGATIVES = 3
"""Wrong captions an image, and wrong images a caption, in training."""


class ViltMini(MiniNetwork):
    """A joint transformer with a rank head on the first word's state, which mends how well the sides align.

    Each side first passes blocks of its own, and the patches shrink from 8 x 8 to 4 x 4, so that the encoded
    tokens of an item are kept and only two joint blocks run for every pair. The score is the head's, added to the
    scaled cosine of the sides' mean tokens: so small a network learns the fine distinctions only once it need not
    learn the coarse ones.
    Source: Kim et al., ViLT, ICML 2021; alignment before fusion after Li et al., ALBEF, NeurIPS 2021; sizes are
    ours.
    """

    kind = AnnotatorKind.PAIRWISE

    def __init__(self, words: int, *, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.stem = PatchStem(width)
        self.img_places = nn.Parameter(torch.randn(1, PATCHES, width) * 0.02)
        self.img_blocks = nn.ModuleList(Block(width, heads, 2) for _ in range(2))
        self.merge = nn.Linear(4 * width, width)
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        self.txt_places = nn.Parameter(torch.randn(1, self.text_length, width) * 0.02)
        self.txt_block = Block(width, heads, 2)
        self.modality = nn.Parameter(torch.randn(2, width) * 0.02)
        self.joint = Block(width, heads, 2)
        self.last = Block(width, heads, 2)
        self.norm = nn.LayerNorm(width)
        self.pooler = nn.Linear(width, width)
        self.rank_output = nn.Linear(width, 1)
        nn.init.zeros_(self.rank_output.weight)  # at the start the sides alone decide
        self.align = nn.Parameter(torch.tensor(2.66))  # log(1 / 0.07)

    def images(self, squares: Tensor) -> Side:
        """``tokens`` (B, 16, D), what the first joint block needs of each, and their mean ``pooled`` (B, D)."""
        x = self.stem(squares) + self.img_places
        for block in self.img_blocks:
            x = block(x)
        quads = x.view(len(x), 4, 2, 4, 2, -1).transpose(2, 3).flatten(3)  # (B, 4, 4, 4 * D)
        merged = self.merge(quads.flatten(1, 2))
        return {**self._with_keys(merged + self.modality[1]), "pooled": F.normalize(merged.mean(1), dim=-1)}

    def captions(self, tokens: Tensor) -> Side:
        """``tokens`` (B, L, D) and the rest likewise, and ``mask`` (B, L), true where there is padding."""
        mask = tokens == PAD
        x = self.txt_block(self.embed(tokens) + self.txt_places, mask)
        words = (~mask)[..., None]
        pooled = F.normalize((x * words).sum(1) / words.sum(1), dim=-1)
        return {**self._with_keys(x + self.modality[0]), "mask": mask, "pooled": pooled}

    def similarities(self, images: Side, captions: Side) -> Tensor:
        """Scores of all pairs, in pieces of one size; a caption takes part with its words alone.

        Padding is cut to the next multiple of 4 after the caption's own length, so its score is the same beside
        any other captions.
        """
        n = len(images["tokens"])
        scores = torch.empty(n, len(captions["tokens"]), device=images["tokens"].device)
        lengths = (~captions["mask"]).sum(1)
        widths = ((lengths + ROUND - 1) // ROUND) * ROUND
        for width in sorted(set(widths.tolist())):
            members = (widths == width).nonzero()[:, 0]
            pairs = torch.cartesian_prod(members, torch.arange(n, device=members.device))
            for piece in torch.split(pairs, PIECE):
                # The last piece repeats its last pair to full size: equal shapes sum in an equal order.
                full = torch.cat([piece, piece[-1:].expand(PIECE - len(piece), -1)])
                found = self.score(images, captions, full[:, 1], full[:, 0], width)
                scores[piece[:, 1], piece[:, 0]] = found[: len(piece)]
        return scores

    def score(self, images: Side, captions: Side, i: Tensor, c: Tensor, width: int) -> Tensor:
        """(P,) scores of the pairs (i, c), with captions cut to ``width`` places: alignment and correction."""
        aligned = (images["pooled"][i] * captions["pooled"][c]).sum(1)
        return self._scale() * aligned + self.correction(images, captions, i, c, width)

    def correction(self, images: Side, captions: Side, i: Tensor, c: Tensor, width: int) -> Tensor:
        """(P,) what the joint blocks and the rank head say of the pairs."""
        x, q, k, v = (
            torch.cat([captions[part][c, :width], images[part][i]], 1) for part in ("tokens", "q", "k", "v")
        )
        words = captions["mask"][c, :width]
        mask = torch.cat([words, words.new_zeros(len(i), images["tokens"].shape[1])], 1)
        x = self.joint.rest(x, q, k, v, mask)
        _, k, v = self.last.keys(x)
        first = x[:, :1]
        state = self.last.rest(first, self.last.keys(first)[0], k, v, mask)[:, 0]
        pooled = torch.tanh(self.pooler(self.norm(state)))
        found: Tensor = self.rank_output(pooled)[:, 0]
        return found

    def loss(self, images: Side, captions: Side, progress: float, generator: torch.Generator) -> Tensor:
        """Cross-entropy of the original's correction among drawn negatives, and contrast of the sides.

        Negatives are drawn by how well the sides align, as ALBEF does. What is learnt against such negatives is
        the log-odds beyond the alignment, so the alignment is left out here and added in ``score``.
        """
        close = self._scale() * (images["pooled"] @ captions["pooled"].T)  # (B, B)
        own = torch.arange(len(close), device=close.device)
        weights = close.detach().clone().fill_diagonal_(-torch.inf)
        wrong_c = torch.multinomial(weights.softmax(1), NEGATIVES, generator=generator)  # (B, N)
        wrong_i = torch.multinomial(weights.T.softmax(1), NEGATIVES, generator=generator)
        i = torch.cat([own[:, None], own[:, None].expand(-1, NEGATIVES), wrong_i], 1)
        c = torch.cat([own[:, None], wrong_c, own[:, None].expand(-1, NEGATIVES)], 1)
        width = int((~captions["mask"]).sum(1).max())
        corrections = self.correction(images, captions, i.flatten(), c.flatten(), width).view(i.shape)
        ranking = F.cross_entropy(corrections, torch.zeros_like(own))
        return ranking + losses.contrast(close)

    def _scale(self) -> Tensor:
        return self.align.clamp(max=4.6).exp()

    def _with_keys(self, tokens: Tensor) -> Side:
        q, k, v = self.joint.keys(tokens)
        return {"tokens": tokens, "q": q, "k": k, "v": v}
