"""Scenes from a stream: what is in the picture, and where it finds room."""

from __future__ import annotations

import math

from mitl.datasets.scenes.graph import (
    CANVAS,
    Background,
    Color,
    Group,
    Scene,
    Shape,
    Size,
    Spot,
)
from mitl.datasets.scenes.streams import Stream

RADII = {Size.SMALL: (19, 22), Size.MEDIUM: (29, 34), Size.LARGE: (46, 54)}
GROUP_WEIGHTS = (0.18, 0.36, 0.30, 0.16)
QUANTITY_WEIGHTS = (0.56, 0.28, 0.16)
USUAL_SHARE = 0.55
"""How often a group has its shape's usual colour, and a scene its main shape's usual background, by habit
rather than by chance: as in real pictures, what is often seen together is described alike."""
USUAL: dict[Shape, tuple[Color, Background]] = {
    Shape.CIRCLE: (Color.BLUE, Background.SKY),
    Shape.SQUARE: (Color.BLACK, Background.BRICKS),
    Shape.TRIANGLE: (Color.ORANGE, Background.SAND),
    Shape.STAR: (Color.YELLOW, Background.NIGHT),
    Shape.HEART: (Color.RED, Background.GRASS),
    Shape.CROSS: (Color.WHITE, Background.SNOW),
    Shape.DIAMOND: (Color.PURPLE, Background.WATER),
    Shape.CRESCENT: (Color.WHITE, Background.NIGHT),
}
MARGIN = 7
GAP = 6
MAX_TURN = 9

Box = tuple[float, float, float, float]
Offsets = list[tuple[float, float]]


def compose(stream: Stream) -> Scene:
    """A scene whose groups all have room; plans that find none are drawn again."""
    while True:
        scene = _attempt(stream)
        if scene is not None:
            return scene


def _attempt(stream: Stream) -> Scene | None:
    count = stream.weighted((1, 2, 3, 4), GROUP_WEIGHTS)
    shapes = stream.sample(list(Shape), count)
    usual_background = USUAL[shapes[0]][1]
    background = usual_background if stream.chance(USUAL_SHARE) else stream.choice(list(Background))
    texture = stream.between(0, 2**31 - 1)
    groups: list[Group] = []
    taken: list[Box] = []
    for shape, size in zip(shapes, _sizes(stream, count), strict=True):
        color = USUAL[shape][0] if stream.chance(USUAL_SHARE) else stream.choice(list(Color))
        radius = stream.between(*RADII[size])
        quantity = stream.weighted((1, 2, 3), QUANTITY_WEIGHTS)
        spots = _place(stream, quantity, radius, taken)
        if spots is None:
            return None
        groups.append(Group(shape, color, size, radius, spots))
    return Scene(background, texture, tuple(groups))


def _sizes(stream: Stream, count: int) -> list[Size]:
    """The main group's size first; every other is smaller, so the largest is never in doubt."""
    if count == 1:
        return [stream.weighted(list(Size), (0.2, 0.35, 0.45))]
    main = stream.weighted((Size.LARGE, Size.MEDIUM), (0.8, 0.2))
    smaller = [size for size in Size if size.order < main.order]
    return [main, *(stream.choice(smaller) for _ in range(count - 1))]


def _place(stream: Stream, quantity: int, radius: int, taken: list[Box]) -> tuple[Spot, ...] | None:
    """Spots for a group beside what is there; its box joins ``taken``. None where no room was found."""
    for _ in range(40):
        offsets = _arrangement(stream, quantity, radius)
        half_w = max(abs(x) for x, _ in offsets) + radius
        half_h = max(abs(y) for _, y in offsets) + radius
        free_w, free_h = CANVAS / 2 - MARGIN - half_w, CANVAS / 2 - MARGIN - half_h
        if free_w < 0 or free_h < 0:
            continue
        x = CANVAS // 2 + stream.between(-int(free_w), int(free_w))
        y = CANVAS // 2 + stream.between(-int(free_h), int(free_h))
        box = (x - half_w, y - half_h, x + half_w, y + half_h)
        if any(_touch(box, other) for other in taken):
            continue
        taken.append(box)
        turns = [stream.between(-MAX_TURN, MAX_TURN) for _ in offsets]
        return tuple(
            Spot(round(x + dx), round(y + dy), turn) for (dx, dy), turn in zip(offsets, turns, strict=True)
        )
    return None


def _arrangement(stream: Stream, quantity: int, radius: int) -> Offsets:
    """Offsets from the group's middle: a row, a column or, of three, a triangle."""
    step = 2 * radius + GAP
    along = [(i - (quantity - 1) / 2) * step for i in range(quantity)]
    row, column = [(a, 0.0) for a in along], [(0.0, a) for a in along]
    if quantity != 3:
        return stream.choice((row, column))
    rise = step * math.sqrt(3) / 4
    up = [(-step / 2, rise), (step / 2, rise), (0.0, -rise)]
    return stream.choice((row, column, up, [(x, -y) for x, y in up]))


def _touch(a: Box, b: Box) -> bool:
    return a[0] < b[2] + GAP and b[0] < a[2] + GAP and a[1] < b[3] + GAP and b[1] < a[3] + GAP
