"""What learns from people's answers: the minis' own weights, and towers over what they and the words say of a pair."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rounds_world import Arrays, Floats, Ints, evidence
from torch import Tensor, nn
from torch.nn import functional as F

from annotators import registry
from annotators.inputs.pixels import imagenet_pixels
from mitl.datasets.scenes.world import CAPTIONS_PER_IMAGE
from mitl.fusion.towers import Towers, read

FINE_TUNED = ("pvse-mini", "pcme-mini")
"""Those that cost least for what they bring."""
SIDE, SHIFT = 64, 3
BATCH_IMAGES = 48
"""Images of a step; all judged captions of theirs are in it."""
RATE, WEIGHT_DECAY, LARGEST_GRADIENT = 2e-3, 1e-2, 2.0
SCALE = 2.3
"""Log of the factor that turns a similarity into log-odds, where training starts."""
_ROWS = 250


@dataclass(frozen=True, eq=False)
class Answers:
    """Pairs that people answered and whether they called them a match, one row an answer."""

    pairs: Ints
    yes: NDArray[np.bool_]

    def joined(self, pairs: Ints, yes: NDArray[np.bool_]) -> Answers:
        """These and more."""
        return Answers(np.append(self.pairs, pairs), np.append(self.yes, yes))


class Learner:
    """One mini whose weights go on learning with every round.

    The loss is the log-likelihood of the answers under sigmoid(scale * similarity + shift), scale and shift learnt: the
    soft contrast of PCME (Chun et al., CVPR 2021, equations 2 and 3) over judged pairs instead of over a batch's
    diagonal, without its samples.
    """

    def __init__(self, name: str, world: Arrays, seed: int) -> None:
        annotator: Any = registry.build(name)
        self._network: nn.Module = annotator.network
        self._key = "mean" if name == "pcme-mini" else "embedding"
        self._world = world
        files = (world.folder / "images" / f"{number + 1}.png" for number in range(world.images))
        self._pixels = np.stack(
            [imagenet_pixels(Image.open(file), SIDE).astype(np.float16) for file in files]
        )
        rows = [annotator._vocabulary.encode(text) for text in world.texts]
        self._lengths = torch.tensor([len(row) for row in rows])
        self._tokens = nn.utils.rnn.pad_sequence([torch.from_numpy(np.array(row)) for row in rows], True)
        self._odds = nn.ParameterList([torch.tensor(SCALE), torch.tensor(0.0)])
        groups: list[dict[str, Any]] = [
            {"params": list(self._network.parameters()), "full": RATE},
            {"params": list(self._odds), "full": 10 * RATE},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=RATE, weight_decay=WEIGHT_DECAY)
        self._rng = np.random.default_rng([seed, len(name)])

    def learn(self, answers: Answers, epochs: int) -> None:
        """Some more epochs on all answers so far and on the originals, which are taken for matches."""
        originals = np.arange(self._world.captions) // CAPTIONS_PER_IMAGE * self._world.captions
        originals += np.arange(self._world.captions)
        pairs = np.append(answers.pairs, originals)
        yes = torch.from_numpy(np.append(answers.yes, np.ones(len(originals), np.bool_)).astype(np.float32))
        images, captions = self._world.split(pairs)
        order = np.argsort(images, kind="stable")
        ends = np.searchsorted(images[order], np.arange(self._world.images + 1))
        steps = epochs * math.ceil(self._world.images / BATCH_IMAGES)
        self._network.train()
        for step, batch in enumerate(self._batches(epochs)):
            for group in self._optimizer.param_groups:
                group["lr"] = group["full"] * (0.5 + 0.5 * math.cos(math.pi * step / steps))
            rows = np.concatenate([order[ends[i] : ends[i + 1]] for i in batch])
            which = np.repeat(np.arange(len(batch)), ends[batch + 1] - ends[batch])
            distinct, at = np.unique(captions[rows], return_inverse=True)
            similarity = compared(self._images(batch), self._captions(torch.from_numpy(distinct)))
            scale, shift = self._odds
            odds = scale.exp() * similarity[torch.from_numpy(which), torch.from_numpy(at)] + shift
            loss = F.binary_cross_entropy_with_logits(odds, yes[torch.from_numpy(rows)])
            self._optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._network.parameters(), LARGEST_GRADIENT)
            self._optimizer.step()
        self._network.eval()

    def vectors(self) -> tuple[Floats, Floats]:
        """(I, D) and (C, D) of all items."""
        with torch.inference_mode():
            images = [
                self._network.images(torch.from_numpy(self._pixels[rows]).float())[self._key]
                for rows in _blocks(self._world.images)
            ]
            captions = [self._captions(torch.from_numpy(rows)) for rows in _blocks(self._world.captions)]
        both = (torch.cat(side).flatten(1).numpy() for side in (images, captions))
        return next(both), next(both)

    def _batches(self, epochs: int) -> Iterator[Ints]:
        for _ in range(epochs):
            shuffled = self._rng.permutation(self._world.images)
            yield from np.array_split(shuffled, math.ceil(len(shuffled) / BATCH_IMAGES))

    def _images(self, rows: Ints) -> Tensor:
        """Moved by a few pixels, as when the network was made."""
        down, right = self._rng.integers(0, 2 * SHIFT + 1, 2)
        wide = np.pad(self._pixels[rows], ((0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)), mode="edge")
        moved = torch.from_numpy(wide[:, :, down : down + SIDE, right : right + SIDE]).float()
        found: Tensor = self._network.images(moved)[self._key]
        return found

    def _captions(self, rows: Tensor) -> Tensor:
        lengths = self._lengths[rows]
        found: Tensor = self._network.captions(self._tokens[rows, : int(lengths.max())], lengths)[self._key]
        return found


def compared(images: Tensor, captions: Tensor) -> Tensor:
    """(I, C) inner products, of several vectors an item the greatest."""
    if images.ndim == 3:
        return torch.einsum("ikd,cld->ickl", images, captions).flatten(2).amax(2)
    return images @ captions.T


def _blocks(count: int) -> Iterator[Ints]:
    for start in range(0, count, _ROWS):
        yield np.arange(start, min(start + _ROWS, count))


class Judge:
    """The towers of `mitl fuse` alone, which learn with every round how surely a candidate is a match.

    Args:
        tuned: the minis whose weights learn; the others stay as they are.
    """

    def __init__(self, world: Arrays, tuned: Sequence[str], seed: int) -> None:
        self._world, self._seed = world, seed
        self._learners = {name: Learner(name, world, seed) for name in tuned}
        self._read = read(evidence(world))

    def learn(self, answers: Answers, epochs: int) -> None:
        """Go on with the minis' weights, then fit towers anew."""
        for learner in self._learners.values():
            learner.learn(answers, epochs)
        if self._learners:
            tuned = {name: learner.vectors() for name, learner in self._learners.items()}
            self._read = read(evidence(self._world, tuned))
        tables, pairs = self._read
        at = np.searchsorted(self._world.baseline, answers.pairs)
        yes = answers.yes.astype(np.float64)
        self._towers = Towers(*tables, pairs.similarities.shape[1], self._seed)
        self._towers.learn(pairs.rows(at), yes, 1 - yes)

    def log_odds(self) -> NDArray[np.float64]:
        """(P,) of all candidates."""
        return self._towers.log_odds(self._read[1])
