"""What an onlooker says of a scene: meanings that tell more or less of the graph; and composed queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from mitl.datasets.scenes.graph import (
    Background,
    Color,
    Group,
    Relation,
    Scene,
    Shape,
    Size,
    Stream,
    relation_holds,
)
from mitl.datasets.scenes.truth import Assertion, Meaning, RelationAssertion

NOUNS: dict[Shape, tuple[tuple[str, str], ...]] = {
    Shape.CIRCLE: (("circle", "circles"), ("disc", "discs"), ("dot", "dots")),
    Shape.SQUARE: (("square", "squares"), ("box", "boxes"), ("block", "blocks")),
    Shape.TRIANGLE: (("triangle", "triangles"), ("wedge", "wedges"), ("pyramid", "pyramids")),
    Shape.STAR: (("star", "stars"), ("five-pointed star", "five-pointed stars")),
    Shape.HEART: (("heart", "hearts"), ("love heart", "love hearts"), ("valentine", "valentines")),
    Shape.CROSS: (("cross", "crosses"), ("plus sign", "plus signs"), ("plus", "pluses")),
    Shape.DIAMOND: (("diamond", "diamonds"), ("rhombus", "rhombuses"), ("lozenge", "lozenges")),
    Shape.CRESCENT: (("crescent", "crescents"), ("moon", "moons"), ("crescent moon", "crescent moons")),
}
COLORS: dict[Color, tuple[str, ...]] = {
    Color.RED: ("red", "red", "crimson", "scarlet"),
    Color.ORANGE: ("orange", "orange", "tangerine", "amber"),
    Color.YELLOW: ("yellow", "yellow", "golden", "lemon"),
    Color.GREEN: ("green", "green", "emerald"),
    Color.BLUE: ("blue", "blue", "azure", "cobalt"),
    Color.PURPLE: ("purple", "purple", "violet"),
    Color.BLACK: ("black", "black", "jet black"),
    Color.WHITE: ("white", "white", "ivory"),
}
SIZES: dict[Size, tuple[str, ...]] = {
    Size.SMALL: ("small", "little", "tiny"),
    Size.MEDIUM: ("medium-sized", "mid-sized"),
    Size.LARGE: ("large", "big", "huge"),
}
NUMBERS: dict[int, tuple[str, ...]] = {
    1: ("one", "a single", "a lone"),
    2: ("two", "two", "a pair of", "a couple of"),
    3: ("three", "three", "a trio of"),
}
RELATIONS: dict[Relation, tuple[str, ...]] = {
    Relation.LEFT_OF: ("to the left of", "left of", "on the left side of"),
    Relation.RIGHT_OF: ("to the right of", "right of", "on the right side of"),
    Relation.ABOVE: ("above", "over", "higher up than"),
    Relation.BELOW: ("below", "under", "beneath"),
}
BACKGROUNDS: dict[Background, tuple[str, ...]] = {
    Background.SKY: ("in the cloudy sky", "among the clouds", "in the daytime sky"),
    Background.GRASS: ("on the grass", "in a meadow", "on a lawn"),
    Background.SAND: ("on the sand", "on a sandy beach", "in the desert"),
    Background.WATER: ("on the water", "on the waves", "at sea"),
    Background.NIGHT: ("at night", "in the night sky", "in the dark of night"),
    Background.SNOW: ("in the snow", "on a snowy field", "in a snowy landscape"),
    Background.BRICKS: ("in front of a brick wall", "against a wall of bricks", "on a brick wall"),
}
MEANINGLESS = (
    "There is no picture here for me to describe.",
    "The image did not load on my screen.",
    "I cannot see anything in this window.",
    "Sorry, the page stays empty and I have nothing to write about.",
    "Nothing is shown where the picture should be.",
)


@dataclass(frozen=True, slots=True)
class Words:
    """How onlookers or listeners call what a graph holds; each word is as likely as the others beside it."""

    nouns: Mapping[Shape, tuple[tuple[str, str], ...]]
    """One of them, and several."""
    colors: Mapping[Color, tuple[str, ...]]
    sizes: Mapping[Size, tuple[str, ...]]
    numbers: Mapping[int, tuple[str, ...]]
    relations: Mapping[Relation, tuple[str, ...]]
    backgrounds: Mapping[Background, tuple[str, ...]]
    meaningless: tuple[str, ...]
    plain: tuple[str, ...]
    """Frames of sentences without a place; ``{core}`` is what is told, ``{verb}`` is or are."""
    placed: tuple[str, ...]
    """Frames of sentences with a ``{place}``."""
    placed_simple: tuple[str, ...]
    """Further ones, of what is told without a relation."""
    placed_related: tuple[str, ...] = ("{core}, {place}",)
    """Further ones, of what is told with a relation."""


PICTURE_WORDS = Words(
    NOUNS,
    COLORS,
    SIZES,
    NUMBERS,
    RELATIONS,
    BACKGROUNDS,
    MEANINGLESS,
    plain=("{core}", "there {verb} {core}", "a picture of {core}", "a drawing that shows {core}"),
    placed=("{place}, there {verb} {core}", "{place} we see {core}"),
    placed_simple=("{core} {place}", "there {verb} {core} {place}"),
)


def say(stream: Stream, meaning: Meaning, using: Words = PICTURE_WORDS) -> str:
    """A sentence that asserts exactly the meaning; of an empty one, a complaint that there is nothing."""
    if not meaning.objects:
        return stream.choice(using.meaningless)
    phrases = {told.shape: _noun_phrase(stream, told, using) for told in meaning.objects}
    plural = (meaning.objects[0].quantity or 1) > 1
    if meaning.relations:
        link = meaning.relations[0]
        plural = any(t.shape is link.subject and (t.quantity or 1) > 1 for t in meaning.objects)
        rest = [phrase for shape, phrase in phrases.items() if shape not in (link.subject, link.other)]
        words = stream.choice(using.relations[link.relation])
        core = f"{phrases[link.subject]} {words} {phrases[link.other]}"
        core += (
            f", {stream.choice(('along with', 'together with', 'and also'))} {_listed(rest)}" if rest else ""
        )
    else:
        core = _listed(list(phrases.values()))
    frames = using.plain
    if meaning.background is not None:
        frames = using.placed + (using.placed_related if meaning.relations else using.placed_simple)
    place = "" if meaning.background is None else stream.choice(using.backgrounds[meaning.background])
    text = stream.choice(frames).format(core=core, verb="are" if plural else "is", place=place)
    return text[0].upper() + text[1:] + ("." if stream.chance(0.7) else "")


def _noun_phrase(stream: Stream, told: Assertion, using: Words) -> str:
    quantity = told.quantity or 1
    noun = stream.choice(using.nouns[told.shape])[0 if quantity == 1 else 1]
    words = [stream.choice(using.sizes[told.size])] if told.size else []
    words += [stream.choice(using.colors[told.color])] if told.color else []
    words.append(noun)
    if told.quantity:
        return " ".join((stream.choice(using.numbers[told.quantity]), *words))
    article = "an" if words[0][0] in "aeiou" else "a"
    return " ".join((article, *words))


def _listed(phrases: Sequence[str]) -> str:
    if len(phrases) == 1:
        return phrases[0]
    return f"{', '.join(phrases[:-1])} and {phrases[-1]}"


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
    count = stream.weighted(range(len(weights)), weights)
    options = _options(scene, groups)
    while options and len(facts) < count:
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


_KEPT = {"shape": "shape", "color": "colour", "quantity": "number", "background": "place"}
"""Fact → what a text calls it where it stays."""
_OF_THEM = {1: "only one", 2: "two", 3: "three"}
_TRIED = 24
"""Pictures that are looked at for a reference that shares something with the target."""


def compose_query(
    stream: Stream, place: int, image_ids: Sequence[str], scenes: Mapping[str, Scene]
) -> tuple[str, str, Meaning]:
    """(reference, text, what the text means of the picture at the place, which is looked for).

    The reference shares one or two facts with the target, which the text keeps without naming them; what it changes
    it names.
    """
    target_id, others = image_ids[place], range(len(image_ids) - 1)
    tried = [image_ids[other + (other >= place)] for other in stream.sample(others, min(_TRIED, len(others)))]
    target = _facts(scenes[target_id])
    shared = {
        image_id: [name for name, value in _facts(scenes[image_id]).items() if target[name] == value]
        for image_id in tried
    }
    fitting = [image_id for image_id in tried if 0 < len(shared[image_id]) < len(target)] or tried
    reference = max(
        stream.shuffled(fitting), key=lambda image_id: ("shape" in shared[image_id], len(shared[image_id]))
    )
    kept = stream.sample(shared[reference], min(len(shared[reference]), stream.between(1, 2)))
    differs = [name for name in target if name not in shared[reference]]
    changed = stream.sample(differs, min(len(differs), stream.between(1, 2)))
    if "shape" not in kept and "shape" not in changed:
        # Something has to be there, in every picture that fits.
        (kept if "shape" in shared[reference] else changed).append("shape")
    if target["quantity"] != 1 and "quantity" not in (*kept, *changed):
        (kept if "quantity" in shared[reference] else changed).append("quantity")
    told = {*kept, *changed}
    main = scenes[target_id].main
    color, quantity = main.color if "color" in told else None, main.quantity if "quantity" in told else None
    background = scenes[target_id].background if "background" in told else None
    meaning = Meaning((Assertion(main.shape, color, None, quantity),), (), background)
    return reference, _text(stream, kept, changed, scenes[target_id]), meaning


def _facts(scene: Scene) -> dict[str, object]:
    main = scene.main
    return {
        "shape": main.shape,
        "color": main.color,
        "quantity": main.quantity,
        "background": scene.background,
    }


def _text(stream: Stream, kept: Sequence[str], changed: Sequence[str], target: Scene) -> str:
    names = " and ".join(_KEPT[name] for name in _KEPT if name in kept)
    main, parts = target.main, []
    if "shape" in changed:
        noun = stream.choice(NOUNS[main.shape])[0 if main.quantity == 1 else 1]
        words = [stream.choice(COLORS[main.color])] if "color" in changed else []
        number = stream.choice(NUMBERS[main.quantity]) if "quantity" in changed else "the"
        parts.append(" ".join(("with", number, *words, noun)))
    else:
        if "color" in changed:
            parts.append(f"in {stream.choice(COLORS[main.color])}")
        if "quantity" in changed:
            parts.append(f"with {_OF_THEM[main.quantity]} of them")
    if "background" in changed:
        parts.append(stream.choice(BACKGROUNDS[target.background]))
    change = " and ".join(parts)
    if not names:
        return f"Instead, one {change}"
    if not change:
        return f"Another one with the same {names}"
    frames = (f"The same {names}, but {change}", f"Keep the {names}, but {change}", f"{change}, same {names}")
    text = stream.choice(frames)
    return text[0].upper() + text[1:]
