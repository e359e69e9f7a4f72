"""Sentences that say a meaning, no more and no less, in words that vary."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.datasets.scenes.graph import Background, Color, Relation, Shape, Size
from mitl.datasets.scenes.streams import Stream
from mitl.datasets.scenes.truth import Assertion, Meaning

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


def say(stream: Stream, meaning: Meaning) -> str:
    """A sentence that asserts exactly the meaning; of an empty one, a complaint that there is no picture."""
    if not meaning.objects:
        return stream.choice(MEANINGLESS)
    phrases = {told.shape: _noun_phrase(stream, told) for told in meaning.objects}
    plural = (meaning.objects[0].quantity or 1) > 1
    if meaning.relations:
        link = meaning.relations[0]
        plural = any(t.shape is link.subject and (t.quantity or 1) > 1 for t in meaning.objects)
        rest = [phrase for shape, phrase in phrases.items() if shape not in (link.subject, link.other)]
        words = stream.choice(RELATIONS[link.relation])
        core = f"{phrases[link.subject]} {words} {phrases[link.other]}"
        core += (
            f", {stream.choice(('along with', 'together with', 'and also'))} {_listed(rest)}" if rest else ""
        )
    else:
        core = _listed(list(phrases.values()))
    return _sentence(stream, core, meaning.background, plural=plural, simple=not meaning.relations)


def _noun_phrase(stream: Stream, told: Assertion) -> str:
    quantity = told.quantity or 1
    noun = stream.choice(NOUNS[told.shape])[0 if quantity == 1 else 1]
    words = [stream.choice(SIZES[told.size])] if told.size else []
    words += [stream.choice(COLORS[told.color])] if told.color else []
    words.append(noun)
    if told.quantity:
        return " ".join((stream.choice(NUMBERS[told.quantity]), *words))
    article = "an" if words[0][0] in "aeiou" else "a"
    return " ".join((article, *words))


def _listed(phrases: Sequence[str]) -> str:
    if len(phrases) == 1:
        return phrases[0]
    return f"{', '.join(phrases[:-1])} and {phrases[-1]}"


def _sentence(stream: Stream, core: str, background: Background | None, *, plural: bool, simple: bool) -> str:
    """The core in one of several frames; ``simple`` cores hold no relation and bear a place behind them."""
    verb = "are" if plural else "is"
    if background is None:
        frames = [core, f"there {verb} {core}", f"a picture of {core}", f"a drawing that shows {core}"]
    else:
        place = stream.choice(BACKGROUNDS[background])
        frames = [f"{place}, there {verb} {core}", f"{place} we see {core}"]
        frames += [f"{core} {place}", f"there {verb} {core} {place}"] if simple else [f"{core}, {place}"]
    text = stream.choice(frames)
    return text[0].upper() + text[1:] + ("." if stream.chance(0.7) else "")
