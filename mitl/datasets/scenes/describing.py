"""What an onlooker says of a scene: meanings that tell more or less of the graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from mitl.datasets.scenes.graph import Group, Relation, Scene, Shape, relation_holds
from mitl.datasets.scenes.streams import Stream
from mitl.datasets.scenes.truth import Assertion, Meaning, RelationAssertion

CLEARLY_APART = 48
"""A relation is told only where the groups lie this far apart along its axis, and further than across."""
TOLD_GROUPS = {1: (1.0,), 2: (0.55, 0.45), 3: (0.55, 0.38, 0.07), 4: (0.5, 0.4, 0.08, 0.02)}
"""By the number of groups in the scene: how often one, two, … of them are told."""
TOLD_FACTS = {1: (0.05, 0.35, 0.4, 0.2), 2: (0.2, 0.45, 0.35), 3: (0.75, 0.25)}
"""By the number of told groups (three or more alike): how often 0, 1, 2, … facts beyond shapes are told.

Most captions tell little, as people do, so most of a caption's matches were never annotated."""
MAIN_LEFT_OUT = 0.08
FACT_WEIGHTS = {"color": 4.0, "background": 2.0, "relation": 2.5, "size": 1.6, "quantity": 0.8}

Fact = tuple[str, object]


def describe(stream: Stream, scene: Scene) -> Meaning:
    """A meaning that holds of the scene; now and then it leaves out the main object.

    More than one object of a kind is always told with its number, because a bare "a star" would say one.
    """
    groups = _told_groups(stream, scene)
    facts: list[Fact] = [("quantity", group) for group in groups if group.quantity > 1]
    weights = TOLD_FACTS[min(len(groups), 3)]
    wanted = stream.weighted(range(len(weights)), weights)
    options = _options(scene, groups)
    while options and len(facts) < wanted:
        told = stream.weighted(options, [_weight(option, options) for option in options])
        options.remove(told)
        facts.append(told)
    return _meaning(stream, scene, groups, facts)


def _told_groups(stream: Stream, scene: Scene) -> list[Group]:
    weights = TOLD_GROUPS[len(scene.groups)]
    count = stream.weighted(range(1, len(weights) + 1), weights)
    others = [group for group in scene.groups if group is not scene.main]
    if len(others) >= count and stream.chance(MAIN_LEFT_OUT):
        return stream.sample(others, count)
    return stream.shuffled([scene.main, *stream.sample(others, count - 1)])


def _options(scene: Scene, groups: list[Group]) -> list[Fact]:
    options: list[Fact] = [(kind, group) for group in groups for kind in ("color", "size")]
    options += [("quantity", group) for group in groups if group.quantity == 1]
    options += [("relation", pair) for pair in combinations(groups, 2) if clear_relation(*pair) is not None][
        :1
    ]
    return [*options, ("background", scene)]


def _weight(option: Fact, options: list[Fact]) -> float:
    """A kind's weight, shared among the groups that it can be told of (colours each count in full)."""
    kind = option[0]
    alike = 1 if kind == "color" else sum(other[0] == kind for other in options)
    return FACT_WEIGHTS[kind] / alike


def clear_relation(a: Group, b: Group) -> Relation | None:
    """The relation of a to b that nobody would doubt, or None."""
    (ax, ay), (bx, by) = a.middle, b.middle
    dx, dy = abs(ax - bx), abs(ay - by)
    if max(dx, dy) < CLEARLY_APART or dx == dy:
        return None
    axis = (Relation.LEFT_OF, Relation.RIGHT_OF) if dx > dy else (Relation.ABOVE, Relation.BELOW)
    return next(relation for relation in axis if relation_holds(a, relation, b))


def _meaning(stream: Stream, scene: Scene, groups: list[Group], facts: list[Fact]) -> Meaning:
    told: dict[Shape, Assertion] = {group.shape: Assertion(group.shape) for group in groups}
    for kind, about in facts:
        if isinstance(about, Group):
            told[about.shape] = replace(told[about.shape], **{kind: getattr(about, kind)})
    relations: tuple[RelationAssertion, ...] = ()
    for kind, about in facts:
        if kind == "relation" and isinstance(about, tuple):
            a, b = stream.shuffled(about)
            relation = clear_relation(a, b)
            assert relation is not None
            relations = (RelationAssertion(a.shape, relation, b.shape),)
    background = scene.background if any(kind == "background" for kind, _ in facts) else None
    return Meaning(tuple(told.values()), relations, background)
