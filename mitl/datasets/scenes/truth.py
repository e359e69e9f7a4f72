"""What a caption means, and how true that is of a picture: four levels with a rationale.

The rule, for asserted shapes and other asserted facts (colour, size, quantity, relation, background):

========  ==================================================================  ==============================
truth     when                                                                rationale
========  ==================================================================  ==============================
yes       all asserted facts hold, the main object is among the asserted      none
weak_yes  all asserted shapes are there and exactly one other fact is wrong   described wrongly, its concept
weak_yes  all asserted facts hold, the main object is not described           not described
weak_no   all asserted shapes are there, two or more other facts are wrong    described wrongly, the concepts
weak_no   some asserted shapes are there and some are not                     not in the image
no        no asserted shape is there (so always where none is asserted)       not in the image
========  ==================================================================  ==============================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    there = [scene.group(shape) is not None for shape in meaning.shapes]
    if not any(there):
        return Truth(Label.NO, (Shortcoming.NOT_IN_IMAGE,))
    if not all(there):
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
