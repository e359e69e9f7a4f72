"""Random pairs for controls: two items that nothing joins, so that whoever looks rates them low."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from mitl.errors import ProposalError
from mitl.proposals.sampling import draw_below
from mitl.records import CaptionItem
from mitl.records.similarity import TASKS, Likeness

_DRAWS = 12
"""Pairs that are drawn for each control; the one whose words have least in common is taken."""
_TRIES = 40
"""Draws for each pair that is looked for."""
_WORD = re.compile(r"\w+")
_EMPTY = frozenset(
    ("a", "an", "the", "of", "on", "in", "at", "to", "and", "or", "with", "is", "are", "it", "its")
)
"""Words that stand in any sentence."""


def draw_unrelated(
    captions: Sequence[CaptionItem],
    samples: pd.DataFrame,
    task: Likeness,
    *,
    n: int,
    seed: int,
    met: Collection[tuple[int, int]] = (),
) -> list[tuple[int, int]]:
    """``n`` pairs of a task that have nothing to do with each other, by the numbers of their items, left and right.

    No caption or image of the one's group was sampled with one of the other's, and of several such pairs that with
    the fewest words in common is taken, whose captions stand for images.

    Args:
        samples: ``SAMPLES``.
        met: pairs to leave out where others can be had.

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
    known: set[tuple[int, int]] = set()
    for number in range(n):
        drawn: list[tuple[int, int]] = []
        for turn in range(_DRAWS * _TRIES):
            stream = f"unrelated {task} {number}"
            one = first[draw_below(len(first), seed, stream, "first", turn)]
            other = second[draw_below(len(second), seed, stream, "second", turn)]
            pair = (min(one, other), max(one, other)) if task.sides[0] == task.sides[1] else (one, other)
            left, right = images(pair)
            if left != right and (left, right) not in joined and pair not in known:
                drawn.append(pair)
                if len(drawn) == _DRAWS:
                    break
        if not drawn:
            break
        fresh = [pair for pair in drawn if pair not in met] or drawn
        chosen.append(min(fresh, key=lambda pair: words.in_common(task, pair)))
        known.add(chosen[-1])
    if not chosen:
        raise ProposalError(
            f"no two items of {task} are unrelated: all that the data set has were sampled with each other; leave "
            "controls out with --controls none"
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
    """What captions say, and what those of an image say together."""

    def __init__(self, captions: Sequence[CaptionItem]) -> None:
        self._texts = {caption.id: caption.text for caption in captions}
        self._of_image: dict[int, list[str]] = defaultdict(list)
        for caption in captions:
            self._of_image[caption.image_id].append(caption.text)

    def in_common(self, task: Likeness, pair: tuple[int, int]) -> float:
        """The share of the shorter one's words that the other has too, 0 to 1."""
        one, other = (
            self._of(" ".join(self._of_image[item]) if side == "image" else self._texts[item])
            for side, item in zip(task.sides, pair, strict=True)
        )
        return len(one & other) / max(1, min(len(one), len(other)))

    def _of(self, text: str) -> set[str]:
        return set(_WORD.findall(text.casefold())) - _EMPTY
