"""Outlines of the shapes as polygons within the unit circle, y downwards."""

from __future__ import annotations

import math
from functools import cache

from mitl.datasets.scenes.graph import Shape

Points = tuple[tuple[float, float], ...]


@cache
def outline(shape: Shape) -> Points:
    """The polygon of a shape of radius 1 around the origin."""
    return _OUTLINES[shape]()


def _on_circle(degrees: float, radius: float = 1.0) -> tuple[float, float]:
    return radius * math.cos(math.radians(degrees)), radius * math.sin(math.radians(degrees))


def _circle() -> Points:
    return tuple(_on_circle(a) for a in range(0, 360, 6))


def _square() -> Points:
    s = 0.82
    return ((-s, -s), (s, -s), (s, s), (-s, s))


def _triangle() -> Points:
    return ((0.0, -0.92), (1.0, 0.8), (-1.0, 0.8))


def _star() -> Points:
    return tuple(_on_circle(-90 + 36 * i, 1.05 if i % 2 == 0 else 0.44) for i in range(10))


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


def _diamond() -> Points:
    return ((0.0, -1.05), (0.68, 0.0), (0.0, 1.05), (-0.68, 0.0))


def _crescent() -> Points:
    """The unit circle less a smaller circle to its right."""
    outer = [_on_circle(a) for a in range(50, 311, 6)]
    tip_x, tip_y = _on_circle(50)
    middle = 0.48
    reach = math.hypot(tip_x - middle, tip_y)
    edge = math.degrees(math.atan2(tip_y, tip_x - middle))
    inner = [(middle + reach * x, reach * y) for x, y in _arc(360 - edge, edge, 30)]
    return tuple((x + 0.15, y) for x, y in (*outer, *inner[1:-1]))


def _arc(start: float, stop: float, steps: int) -> list[tuple[float, float]]:
    return [_on_circle(start + (stop - start) * i / steps) for i in range(steps + 1)]


_OUTLINES = {
    Shape.CIRCLE: _circle,
    Shape.SQUARE: _square,
    Shape.TRIANGLE: _triangle,
    Shape.STAR: _star,
    Shape.HEART: _heart,
    Shape.CROSS: _cross,
    Shape.DIAMOND: _diamond,
    Shape.CRESCENT: _crescent,
}
