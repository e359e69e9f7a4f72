"""Pictures of scenes, the same bytes for the same scene and size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mitl.datasets.scenes.graph import CANVAS, Background, Color, Group, Scene, Shape, Spot, Stream

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw


Rgb = tuple[int, int, int]


def paint(pen: ImageDraw, background: Background, texture: int, scale: float) -> None:
    """Fill the whole canvas; ``scale`` is pixels per unit."""
    _PAINTERS[background](Brush(pen, scale), Stream("texture", background, texture))


class Brush:
    """Draws in canvas units."""

    def __init__(self, pen: ImageDraw, scale: float) -> None:
        self.pen, self.scale = pen, scale

    def box(self, x: float, y: float, right: float, bottom: float, fill: Rgb) -> None:
        """A filled rectangle."""
        s = self.scale
        self.pen.rectangle((x * s, y * s, right * s, bottom * s), fill=fill)

    def blob(self, x: float, y: float, rx: float, ry: float, fill: Rgb) -> None:
        """A filled ellipse around its middle."""
        s = self.scale
        self.pen.ellipse(((x - rx) * s, (y - ry) * s, (x + rx) * s, (y + ry) * s), fill=fill)

    def stroke(self, points: Sequence[tuple[float, float]], fill: Rgb, width: float) -> None:
        """An open line through the points."""
        s = self.scale
        self.pen.line([(x * s, y * s) for x, y in points], fill=fill, width=max(1, round(width * s)))

    def fade(self, top: Rgb, bottom: Rgb, start: float = 0, stop: float = CANVAS) -> None:
        """A vertical gradient between two heights."""
        bands = 64
        step = (stop - start) / bands
        for i in range(bands):
            t = i / (bands - 1)
            r, g, b = (round(a + (z - a) * t) for a, z in zip(top, bottom, strict=True))
            self.box(0, start + i * step, CANVAS, start + (i + 1) * step, (r, g, b))


def _sky(brush: Brush, stream: Stream) -> None:
    brush.fade((104, 176, 240), (190, 224, 250))
    for row in range(4):
        x, y = stream.between(0, CANVAS), 30 + row * 62 + stream.between(-12, 12)
        width = stream.between(20, 30)
        for dx, lift, size in ((-1.1, 0.0, 0.7), (0.0, -0.35, 1.0), (1.1, 0.0, 0.75), (0.2, 0.2, 0.8)):
            brush.blob(
                x + dx * width, y + lift * width * 0.6, width * size, width * size * 0.5, (240, 247, 253)
            )


def _grass(brush: Brush, stream: Stream) -> None:
    brush.fade((150, 205, 110), (92, 160, 68))
    for row in range(0, CANVAS + 16, 16):
        for column in range(0, CANVAS, 13):
            x, y = column + stream.between(-4, 4), row + stream.between(-5, 5)
            for lean in (-3, 0, 3):
                brush.stroke([(x + lean / 3, y), (x + lean, y - 9)], (70, 134, 52), 1.4)


def _sand(brush: Brush, stream: Stream) -> None:
    brush.fade((243, 222, 172), (226, 194, 132))
    for row in range(6):
        y = 20 + row * 44 + stream.between(-8, 8)
        shift = stream.between(0, 40)
        line = [(x, y + 6 * (1 - abs((x + shift) % 80 - 40) / 20)) for x in range(0, CANVAS + 8, 8)]
        brush.stroke(line, (208, 172, 112), 2.2)
    for _ in range(150):
        brush.blob(stream.between(0, CANVAS), stream.between(0, CANVAS), 1.1, 1.1, (190, 152, 98))


def _water(brush: Brush, stream: Stream) -> None:
    brush.fade((64, 176, 190), (24, 112, 140))
    for row in range(11):
        y, shift = 10 + row * 24, stream.between(0, 36)
        for start in range(-36 + shift, CANVAS, 36):
            wave = [(start + i * 3, y + 0.055 * (i * 3 - 18) ** 2 * -1 + 9) for i in range(13)]
            brush.stroke(wave, (166, 222, 226), 2.4)


def _night(brush: Brush, stream: Stream) -> None:
    brush.fade((14, 16, 52), (44, 40, 92))
    for _ in range(70):
        size = stream.choice((0.9, 1.2, 1.6))
        brush.blob(stream.between(0, CANVAS), stream.between(0, CANVAS), size, size, (236, 236, 205))


def _snow(brush: Brush, stream: Stream) -> None:
    brush.fade((206, 214, 224), (232, 237, 243), 0, 110)
    brush.box(0, 110, CANVAS, CANVAS, (240, 244, 248))
    for x in range(-20, CANVAS + 60, 60):
        brush.blob(x + stream.between(-8, 8), 122, 52, stream.between(16, 26), (240, 244, 248))
    for _ in range(60):
        x, y = stream.between(0, CANVAS), stream.between(0, CANVAS)
        tone = (255, 255, 255) if y < 110 else (206, 218, 232)
        for dx, dy in ((4, 0), (2, 3.5), (-2, 3.5)):
            brush.stroke([(x - dx, y - dy), (x + dx, y + dy)], tone, 1.3)


def _bricks(brush: Brush, stream: Stream) -> None:
    brush.box(0, 0, CANVAS, CANVAS, (205, 196, 188))
    tones = ((166, 92, 74), (156, 84, 68), (176, 102, 82), (162, 88, 76))
    for row in range(11):
        for column in range(-1, 6):
            x = column * 48 + (24 if row % 2 else 0)
            brush.box(x + 1.5, row * 24 + 1.5, x + 46.5, row * 24 + 22.5, stream.choice(tones))


_PAINTERS: dict[Background, Callable[[Brush, Stream], None]] = {
    Background.SKY: _sky,
    Background.GRASS: _grass,
    Background.SAND: _sand,
    Background.WATER: _water,
    Background.NIGHT: _night,
    Background.SNOW: _snow,
    Background.BRICKS: _bricks,
}


Points = tuple[tuple[float, float], ...]


def _on_circle(degrees: float, radius: float = 1.0) -> tuple[float, float]:
    return radius * math.cos(math.radians(degrees)), radius * math.sin(math.radians(degrees))


def _heart() -> Points:
    points = []
    for degrees in range(0, 360, 6):
        t = math.radians(degrees)
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 16.5, -(y + 2.5) / 15.5))
    return tuple(points)


def _cross() -> Points:
    a, b = 0.34, 0.98
    quarter = ((-a, -b), (a, -b), (a, -a))
    points: list[tuple[float, float]] = []
    for turn in range(4):
        for x, y in quarter:
            for _ in range(turn):
                x, y = -y, x
            points.append((x, y))
    return tuple(dict.fromkeys(points))


def _crescent() -> Points:
    """The unit circle less a smaller circle to its right."""
    outer = [_on_circle(a) for a in range(50, 311, 6)]
    tip_x, tip_y = _on_circle(50)
    middle = 0.48
    reach = math.hypot(tip_x - middle, tip_y)
    edge = math.degrees(math.atan2(tip_y, tip_x - middle))
    start = 360 - edge
    arc = [_on_circle(start + (edge - start) * i / 30) for i in range(31)]
    inner = [(middle + reach * x, reach * y) for x, y in arc]
    return tuple((x + 0.15, y) for x, y in (*outer, *inner[1:-1]))


# The polygons of radius 1 around the origin.
_OUTLINES: dict[Shape, Points] = {
    Shape.CIRCLE: tuple(_on_circle(a) for a in range(0, 360, 6)),
    Shape.SQUARE: ((-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)),
    Shape.TRIANGLE: ((0.0, -0.92), (1.0, 0.8), (-1.0, 0.8)),
    Shape.STAR: tuple(_on_circle(-90 + 36 * i, 1.05 if i % 2 == 0 else 0.44) for i in range(10)),
    Shape.HEART: _heart(),
    Shape.CROSS: _cross(),
    Shape.DIAMOND: ((0.0, -1.05), (0.68, 0.0), (0.0, 1.05), (-0.68, 0.0)),
    Shape.CRESCENT: _crescent(),
}


SUPERSAMPLING = 3
FILLS = {
    Color.RED: (222, 32, 38),
    Color.ORANGE: (250, 138, 16),
    Color.YELLOW: (255, 226, 30),
    Color.GREEN: (24, 150, 58),
    Color.BLUE: (30, 80, 220),
    Color.PURPLE: (146, 52, 190),
    Color.BLACK: (24, 24, 26),
    Color.WHITE: (255, 255, 255),
}
LIGHT_RIM = (250, 250, 250)
DARK_RIM = (38, 38, 44)


def draw(scene: Scene, size: int = CANVAS, *, ground: Rgb | None = None) -> Image:
    """The scene as an RGB picture of ``size`` by ``size`` pixels, before its background or a plain ``ground``.

    Every object has a light rim around a dark one, so that white stands out from snow and black from night.
    """
    from PIL import Image, ImageDraw

    pixels = size * SUPERSAMPLING
    scale = pixels / CANVAS
    image = Image.new("RGB", (pixels, pixels), ground or (0, 0, 0))
    pen = ImageDraw.Draw(image)
    if ground is None:
        paint(pen, scene.background, scene.texture, scale)
    for group in scene.groups:
        for spot in group.spots:
            _draw_object(pen, group, spot, scale)
    return image.reduce(SUPERSAMPLING)


def _draw_object(pen: ImageDraw, group: Group, spot: Spot, scale: float) -> None:
    turn = math.radians(spot.turn)
    cos, sin = math.cos(turn) * group.radius, math.sin(turn) * group.radius
    points = [
        ((spot.x + x * cos - y * sin) * scale, (spot.y + x * sin + y * cos) * scale)
        for x, y in _OUTLINES[group.shape]
    ]
    closed = [*points, *points[:2]]
    for rim, width in ((LIGHT_RIM, 6.0), (DARK_RIM, 3.2)):
        pen.line(closed, fill=rim, width=max(1, round(width * scale)), joint="curve")
    pen.polygon(points, fill=FILLS[group.color])
