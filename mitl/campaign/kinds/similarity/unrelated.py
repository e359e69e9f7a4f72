"""Random pairs for controls: two items that nothing joins, so that whoever looks rates them low."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set

import numpy as np
import pandas as pd

from mitl.errors import ProposalError
from mitl.proposals.sampling import draw_below
from mitl.records import CaptionItem
from mitl.records.similarity import TASKS, Likeness

_DRAWS = 24
"""Pairs that are drawn for each control; the one whose captions have least in common is taken."""
_TRIES = 20
"""Draws for each pair that is looked for."""
_WORD = re.compile(r"\w+")


def draw_unrelated(
    captions: Sequence[CaptionItem],
    samples: pd.DataFrame,
    task: Likeness,
    *,
    n: int,
    seed: int,
    met: Collection[tuple[int, int]] = (),
    instead: str = "leave controls out with --controls none",
) -> list[tuple[int, int]]:
    """``n`` pairs of a task that have nothing to do with each other, by the numbers of their items, left and right.

    No caption or image of the one's group was sampled with one of the other's, and of several such pairs that is taken
    whose images' captions have least in common.

    Args:
        samples: ``SAMPLES``.
        met: pairs to leave out where others can be had.
        instead: what to do where there is none.

    Raises:
        ProposalError: the data set has no such pair.
    """
    image_of = {caption.id: caption.image_id for caption in captions}
    sides = {"caption": sorted(image_of), "image": sorted(set(image_of.values()))}
    words = _Words(captions)
    joined = _joined_images(samples, image_of)
    first, second = (sides[side] for side in task.sides)

    def images(pair: tuple[int, int]) -> tuple[int, int]:
        return (
            pair[0] if task.sides[0] == "image" else image_of[pair[0]],
            pair[1] if task.sides[1] == "image" else image_of[pair[1]],
        )

    chosen: list[tuple[int, int]] = []
    drawn_before: set[tuple[int, int]] = set()
    for number in range(n):
        drawn: list[tuple[int, int]] = []
        for turn in range(_DRAWS * _TRIES):
            stream = f"unrelated {task} {number}"
            one = first[draw_below(len(first), seed, stream, "first", turn)]
            other = second[draw_below(len(second), seed, stream, "second", turn)]
            pair = (min(one, other), max(one, other)) if task.sides[0] == task.sides[1] else (one, other)
            left, right = images(pair)
            if left != right and (left, right) not in joined and pair not in drawn_before:
                drawn.append(pair)
                if len(drawn) == _DRAWS:
                    break
        if not drawn:
            break
        fresh = [pair for pair in drawn if pair not in met] or drawn
        chosen.append(min(fresh, key=lambda pair: words.in_common(images(pair))))
        drawn_before.add(chosen[-1])
    if not chosen:
        raise ProposalError(
            f"no two items of {task} are unrelated: all that the data set has were sampled with each other; "
            f"{instead}"
        )
    return chosen


def _joined_images(samples: pd.DataFrame, image_of: Mapping[int, int]) -> set[tuple[int, int]]:
    """The images that any pair joins which was sampled, itself or by its captions; both ways round."""
    joined: set[tuple[int, int]] = set()
    captions = pd.Series(image_of, dtype=np.int64)
    for place, of_task in samples.groupby("task", sort=True):
        sides = TASKS[int(str(place))].sides
        ends = [
            of_task[name].to_numpy() if side == "image" else captions.loc[of_task[name]].to_numpy()
            for name, side in zip(("first", "second"), sides, strict=True)
        ]
        left, right = (end.tolist() for end in ends)
        joined.update(zip(left, right, strict=True))
        joined.update(zip(right, left, strict=True))
    return joined


class _Words:
    """The words of all captions of an image, weighted by how few images have them."""

    def __init__(self, captions: Sequence[CaptionItem]) -> None:
        self._of_image: dict[int, set[str]] = defaultdict(set)
        for caption in captions:
            self._of_image[caption.image_id].update(_WORD.findall(caption.text.casefold()))
        n_having = Counter(word for words in self._of_image.values() for word in words)
        n_images = len(self._of_image)
        self._weight = {word: math.log(n_images / n) for word, n in n_having.items()}
        self._total = {image: self._sum(words) for image, words in self._of_image.items()}

    def in_common(self, images: tuple[int, int]) -> float:
        """The weight of what both images' captions say, beside that of what each says; 0 to 1."""
        one, other = images
        both = math.sqrt(self._total[one] * self._total[other])
        return self._sum(self._of_image[one] & self._of_image[other]) / both if both else 0.0

    def _sum(self, words: Set[str]) -> float:
        return math.fsum(self._weight[word] for word in words)  # exact, so that no order matters
