"""Scenes: a generated world of pictures and captions in which the truth of every pair is known.

``generate`` makes a world from a seed, ``write_world`` and ``read_world`` keep it in a folder, ``write_items`` keeps it
and gives what annotators take, ``draw`` makes the picture of a scene, ``truth`` and ``truth_matrix`` say how well
captions fit pictures, ``graded_similarity`` how like any two items are.
"""

from mitl.datasets.scenes.drawing import draw
from mitl.datasets.scenes.files import read_world, write_items, write_world
from mitl.datasets.scenes.graph import (
    Background,
    Color,
    Group,
    Relation,
    Scene,
    Shape,
    Size,
    Spot,
    relation_holds,
)
from mitl.datasets.scenes.similarity import graded_similarity
from mitl.datasets.scenes.truth import Assertion, Meaning, RelationAssertion, Truth, truth
from mitl.datasets.scenes.world import Defect, Description, World, generate, truth_matrix

__all__ = [
    "Assertion",
    "Background",
    "Color",
    "Defect",
    "Description",
    "Group",
    "Meaning",
    "Relation",
    "RelationAssertion",
    "Scene",
    "Shape",
    "Size",
    "Spot",
    "Truth",
    "World",
    "draw",
    "generate",
    "graded_similarity",
    "read_world",
    "relation_holds",
    "truth",
    "truth_matrix",
    "write_items",
    "write_world",
]
