"""How like two items of a world are, from 0 to 5: two captions, two pictures, or a picture and a caption.

A picture holds, and a caption tells, facts of known weight (``WEIGHTS``): which shapes are there, of what colour,
how many and how large, where they lie from each other, and what lies behind them. Quantity and size are told by
steps ("at least two", "fewer than three"), so that three are nearer to two than to one. With F the facts of an item
and w(F) their weight, two items of one side are as like as their facts overlap (Dice's coefficient):

    score = 5 · 2 w(F₁ ∩ F₂) / (w(F₁) + w(F₂))

A caption need not tell all that is in a picture. It is as good as what it tells is true, P = w(F_c ∩ F_i) / w(F_c),
and a little better the more it tells of the objects, C = (what they have in common) / (what the picture holds), the
main object counting twice:

    score = 5 · P · (0.9 + 0.1 · C)

Each fact that two items come to share raises the score. Items without a common fact score 0; equal ones score 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations, product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints
from mitl.datasets.scenes.graph import Background, Color, Relation, Scene, Shape, relation_holds
from mitl.datasets.scenes.truth import SHAPE_COLUMN, Assertion, Fact, Meaning
from mitl.datasets.scenes.world import World
from mitl.errors import DatasetError
from mitl.records.similarity import Likeness

T = TypeVar("T")

TOP = 5.0
TOLD_IN_FULL = 0.1
"""How much of a true caption's score hangs on how many of the objects it tells."""
OBJECT, MAIN, COLOR, COUNT, SIZE, RELATION, BACKGROUND = 3.0, 2.0, 1.5, 0.5, 0.25, 0.375, 1.5
"""What a fact weighs: count and size once for each of two steps, a relation once from either of its ends.

Eighths, so that sums are exact in whatever order they are made: a pair's score is the same in any company."""
NOTHING: Fact = ("nothing",)
"""What a meaningless caption tells, so that two of them are alike."""


def _steps(shape: Shape, what: str, place: int) -> list[Fact]:
    """A place on a scale of three, as the two steps that are reached or not."""
    return [(shape, what, step, place >= step) for step in (1, 2)]


WEIGHTS: dict[Fact, float] = {
    NOTHING: OBJECT,
    **{(shape,): OBJECT for shape in Shape},
    **{(shape, "main"): MAIN for shape in Shape},
    **dict.fromkeys(product(Shape, Color), COLOR),
    **{fact: COUNT for shape in Shape for place in (0, 2) for fact in _steps(shape, "count", place)},
    **{fact: SIZE for shape in Shape for place in (0, 2) for fact in _steps(shape, "size", place)},
    **{(a, relation, b): RELATION for a, b in permutations(Shape, 2) for relation in Relation},
    **{(background,): BACKGROUND for background in Background},
}
"""Every fact, and what it weighs."""
_COLUMN = {fact: column for column, fact in enumerate(WEIGHTS)}
_WEIGHT = np.array(list(WEIGHTS.values()))
BLOCK = 4096


def graded_similarity(
    world: World, task: Likeness, first_ids: Sequence[str], second_ids: Sequence[str]
) -> Floats:
    """How like the items of each pair are, (P,) from 0 to 5; of one side the order does not matter.

    Args:
        first_ids, second_ids: external ids, of SITS images first and captions second.

    Raises:
        DatasetError: an id that the world lacks, or not as many first as second ones.
    """
    if len(first_ids) != len(second_ids):
        raise DatasetError(f"{len(first_ids)} first items and {len(second_ids)} second ones make no pairs")
    if task is Likeness.SITS:
        scenes, image = _items(world, first_ids, world.scenes)
        meanings, caption = _items(world, second_ids, world.meanings)
        holds, tells = _table(scenes, _scene_facts), _table(meanings, _told_facts)
        score = _by_block(partial(_fit, holds, tells), image, caption)
        return score * (1 - TOLD_IN_FULL + TOLD_IN_FULL * _coverage(scenes, meanings, image, caption))
    if task is Likeness.SIS:
        scenes, place = _items(world, [*first_ids, *second_ids], world.scenes)
        facts = _table(scenes, _scene_facts)
    else:
        meanings, place = _items(world, [*first_ids, *second_ids], world.meanings)
        facts = _table(meanings, _meant_facts)
    first, second = np.split(place, 2)
    return _by_block(partial(_overlap, facts), first, second)


def _items(world: World, ids: Sequence[str], known: Mapping[str, T]) -> tuple[list[T], Ints]:
    """Each item once, and (P,) the place among them of each id."""
    names, place = np.unique(np.asarray(ids, dtype=np.str_), return_inverse=True)
    return world.look_up(names.tolist(), known), place.astype(np.int64)


def _table(items: Sequence[T], facts_of: Callable[[T], Iterator[Fact]]) -> NDArray[np.bool_]:
    """(items, facts) whether an item has a fact."""
    table = np.zeros((len(items), len(_COLUMN)), dtype=np.bool_)
    for row, item in zip(table, items, strict=True):
        row[[_COLUMN[fact] for fact in facts_of(item)]] = True
    return table


def _by_block(score: Callable[[Ints, Ints], Floats], first: Ints, second: Ints) -> Floats:
    """(P,) scores, so many pairs at a time that they fit in memory."""
    starts = range(0, len(first), BLOCK)
    blocks = [score(first[start : start + BLOCK], second[start : start + BLOCK]) for start in starts]
    return np.concatenate([np.empty(0), *blocks])


def _overlap(facts: NDArray[np.bool_], first: Ints, second: Ints) -> Floats:
    weight: Floats = facts @ _WEIGHT
    shared: Floats = (facts[first] & facts[second]) @ _WEIGHT
    score: Floats = TOP * 2 * shared / (weight[first] + weight[second])
    return score


def _fit(holds: NDArray[np.bool_], tells: NDArray[np.bool_], image: Ints, caption: Ints) -> Floats:
    weight: Floats = tells @ _WEIGHT
    true: Floats = (holds[image] & tells[caption]) @ _WEIGHT
    score: Floats = TOP * true / weight[caption]
    return score


def _coverage(scenes: Sequence[Scene], meanings: Sequence[Meaning], image: Ints, caption: Ints) -> Floats:
    """(P,) share of a picture's objects that a caption tells, the main one counting twice."""
    shown, told = np.zeros((len(scenes), len(SHAPE_COLUMN))), np.zeros((len(meanings), len(SHAPE_COLUMN)))
    for row, scene in zip(shown, scenes, strict=True):
        row[[SHAPE_COLUMN[group.shape] for group in scene.groups]] = 1
        row[SHAPE_COLUMN[scene.main.shape]] = 2
    for row, meaning in zip(told, meanings, strict=True):
        row[[SHAPE_COLUMN[shape] for shape in meaning.shapes]] = 1
    covered: Floats = np.einsum("ps,ps->p", shown[image], told[caption]) / shown.sum(axis=1)[image]
    return covered


def _scene_facts(scene: Scene) -> Iterator[Fact]:
    """All that a picture holds."""
    yield (scene.background,)
    yield (scene.main.shape, "main")
    for group in scene.groups:
        yield from _thing(Assertion(group.shape, group.color, group.size, group.quantity))
    for a, b in permutations(scene.groups, 2):
        yield from ((a.shape, relation, b.shape) for relation in Relation if relation_holds(a, relation, b))


def _told_facts(meaning: Meaning) -> Iterator[Fact]:
    """What a caption says and no more, as ``truth`` takes it."""
    if not meaning.objects:
        yield NOTHING
    for told in meaning.objects:
        yield from _thing(told)
    for link in meaning.relations:
        yield link.subject, link.relation, link.other
        yield link.other, link.relation.inverse, link.subject
    if meaning.background is not None:
        yield (meaning.background,)


def _meant_facts(meaning: Meaning) -> Iterator[Fact]:
    """What a reader of the caption alone takes it to say: "a star" is one star."""
    yield from _told_facts(meaning)
    for told in meaning.objects:
        if told.quantity is None:
            yield from _steps(told.shape, "count", 0)


def _thing(told: Assertion) -> Iterator[Fact]:
    yield (told.shape,)
    if told.color is not None:
        yield told.shape, told.color
    if told.size is not None:
        yield from _steps(told.shape, "size", told.size.order)
    if told.quantity is not None:
        yield from _steps(told.shape, "count", told.quantity - 1)
