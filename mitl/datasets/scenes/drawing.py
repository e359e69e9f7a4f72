"""Pictures of scenes, the same bytes for the same scene and size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mitl.datasets.scenes.backgrounds import paint
from mitl.datasets.scenes.graph import CANVAS, Color, Group, Scene, Spot
from mitl.datasets.scenes.shapes import outline

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

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


def draw(scene: Scene, size: int = CANVAS) -> Image:
    """The scene as an RGB picture of ``size`` by ``size`` pixels.

    Every object has a light rim around a dark one, so that white stands out from snow and black from night.
    """
    from PIL import Image, ImageDraw

    pixels = size * SUPERSAMPLING
    scale = pixels / CANVAS
    image = Image.new("RGB", (pixels, pixels))
    pen = ImageDraw.Draw(image)
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
        for x, y in outline(group.shape)
    ]
    closed = [*points, *points[:2]]
    for rim, width in ((LIGHT_RIM, 6.0), (DARK_RIM, 3.2)):
        pen.line(closed, fill=rim, width=max(1, round(width * scale)), joint="curve")
    pen.polygon(points, fill=FILLS[group.color])
