"""What lies behind the objects, painted so that a person names it at a glance and objects stay readable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mitl.datasets.scenes.graph import CANVAS, Background
from mitl.datasets.scenes.streams import Stream

if TYPE_CHECKING:
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
