"""The truth of many pairs at once, equal to ``truth`` of each.

Every fact that a caption can assert is a column. A scene has a 1 where the fact holds, a caption where it
asserts the fact; the inner product counts the asserted facts that hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.scenes.graph import Background, Color, Relation, Scene, Shape, Size, relation_holds
from mitl.records import Concept, Label, Shortcoming


@dataclass(frozen=True, slots=True)
class Assertion:
    """A shape that a caption says is there, and what it says of it; None where it does not say."""

    shape: Shape
    color: Color | None = None
    size: Size | None = None
    quantity: int | None = None


@dataclass(frozen=True, slots=True)
class RelationAssertion:
    """Where a caption says that one asserted shape lies, seen from another asserted shape."""

    subject: Shape
    relation: Relation
    other: Shape


@dataclass(frozen=True, slots=True)
class Meaning:
    """All that a caption asserts; each shape at most once. A meaningless caption asserts nothing."""

    objects: tuple[Assertion, ...] = ()
    relations: tuple[RelationAssertion, ...] = ()
    background: Background | None = None

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The asserted shapes in the order told."""
        return tuple(assertion.shape for assertion in self.objects)


@dataclass(frozen=True, slots=True)
class Truth:
    """How well a caption fits a picture, and why not better."""

    label: Label
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()


def truth(scene: Scene, meaning: Meaning) -> Truth:
    """The truth of a caption's meaning of a scene, by the rule above; concepts in their enum's order."""
    shown = [scene.group(shape) is not None for shape in meaning.shapes]
    if not any(shown):
        return Truth(Label.NO, (Shortcoming.NOT_IN_IMAGE,))
    if not all(shown):
        return Truth(Label.WEAK_NO, (Shortcoming.NOT_IN_IMAGE,))
    wrong = list(_wrong_facts(scene, meaning))
    if wrong:
        label = Label.WEAK_YES if len(wrong) == 1 else Label.WEAK_NO
        concepts = tuple(concept for concept in Concept if concept in wrong)
        return Truth(label, (Shortcoming.DESCRIBED_WRONGLY,), concepts)
    if scene.main.shape not in meaning.shapes:
        return Truth(Label.WEAK_YES, (Shortcoming.NOT_DESCRIBED,))
    return Truth(Label.YES)


def _wrong_facts(scene: Scene, meaning: Meaning) -> Iterator[Concept]:
    """One concept for each asserted fact that does not hold; all asserted shapes are in the scene."""
    groups = {group.shape: group for group in scene.groups}
    for told in meaning.objects:
        group = groups[told.shape]
        if told.quantity not in (None, group.quantity):
            yield Concept.QUANTITY
        if told.color not in (None, group.color):
            yield Concept.COLOR
        if told.size not in (None, group.size):
            yield Concept.OTHER
    for link in meaning.relations:
        if not relation_holds(groups[link.subject], link.relation, groups[link.other]):
            yield Concept.ORIENTATION
    if meaning.background not in (None, scene.background):
        yield Concept.LOCATION


Fact: TypeAlias = tuple[object, ...]

SHAPES = list(Shape)
FACTS: list[Fact] = [
    *product(SHAPES, list(Color)),
    *product(SHAPES, list(Size)),
    *product(SHAPES, (1, 2, 3)),
    *((a, relation, b) for a, b in permutations(SHAPES, 2) for relation in Relation),
    *((background,) for background in Background),
]
SHAPE_COLUMN = {shape: i for i, shape in enumerate(SHAPES)}
FACT_COLUMN = {fact: i for i, fact in enumerate(FACTS)}
BLOCK = 512


def label_codes(scenes: Sequence[Scene], meanings: Sequence[Meaning]) -> NDArray[np.int8]:
    """Label codes 1 (yes) to 4 (no), (Q, G) int8: row q is scene q, column g is meaning g."""
    # Shapes that are there (Q, S), facts that hold (Q, F), the main shape (Q, S).
    shape_of = _indicators(
        ([SHAPE_COLUMN[group.shape] for group in scene.groups] for scene in scenes), len(scenes), len(SHAPES)
    )
    fact_of = _indicators((_true_columns(scene) for scene in scenes), len(scenes), len(FACTS))
    main_of = _indicators(([SHAPE_COLUMN[scene.main.shape]] for scene in scenes), len(scenes), len(SHAPES))
    told_shapes = _indicators(
        ([SHAPE_COLUMN[shape] for shape in m.shapes] for m in meanings), len(meanings), len(SHAPES)
    )
    told_facts = _indicators((_fact_columns(m) for m in meanings), len(meanings), len(FACTS))
    shape_count, fact_count = told_shapes.sum(axis=1), told_facts.sum(axis=1)
    codes = np.empty((len(scenes), len(meanings)), dtype=np.int8)
    for start in range(0, len(scenes), BLOCK):
        rows = slice(start, start + BLOCK)
        shown = shape_of[rows] @ told_shapes.T  # (B, G)
        wrong = fact_count - fact_of[rows] @ told_facts.T  # (B, G)
        main_told = main_of[rows] @ told_shapes.T > 0  # (B, G)
        codes[rows] = np.select(
            [shown == 0, shown < shape_count, wrong >= 2, (wrong == 1) | ~main_told],
            [Label.NO.code, Label.WEAK_NO.code, Label.WEAK_NO.code, Label.WEAK_YES.code],
            default=Label.YES.code,
        )
    return codes


def _indicators(columns: Iterator[list[int]], rows: int, width: int) -> NDArray[np.float32]:
    out = np.zeros((rows, width), dtype=np.float32)
    for row, marked in enumerate(columns):
        out[row, marked] = 1
    return out


def _true_columns(scene: Scene) -> list[int]:
    facts: list[Fact] = [(scene.background,)]
    for group in scene.groups:
        facts += [(group.shape, group.color), (group.shape, group.size), (group.shape, group.quantity)]
    facts += [
        (a.shape, relation, b.shape)
        for a, b in permutations(scene.groups, 2)
        for relation in Relation
        if relation_holds(a, relation, b)
    ]
    return [FACT_COLUMN[fact] for fact in facts]


def _fact_columns(meaning: Meaning) -> list[int]:
    facts: list[Fact] = []
    for told in meaning.objects:
        facts += [(told.shape, said) for said in (told.color, told.size, told.quantity) if said is not None]
    facts += [(link.subject, link.relation, link.other) for link in meaning.relations]
    if meaning.background is not None:
        facts.append((meaning.background,))
    return [FACT_COLUMN[fact] for fact in facts]
