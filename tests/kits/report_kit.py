"""The report's drawings, each made once; the colours of its style sheet, and how far eyes can tell them apart."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps

import numpy as np
import pytest
from numpy.typing import NDArray

from mitl.analysis.report import loop_plots, machine_plots, plots
from mitl.analysis.report.render import PAGES

DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""Linear RGB as seen. Source: Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009, severity 1.0."""


_drawn: dict[bytes, str] = {}


@pytest.fixture(scope="module")
def drawn_once() -> Iterator[None]:
    """Pages that show the same numbers share their drawings, which take nearly all of a page's time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (loop_plots, machine_plots, plots):
            for name in [name for name in vars(module) if name.endswith("_svg")]:
                patch.setattr(module, name, _once(getattr(module, name)))
        yield


def _once(draw: Callable[..., str]) -> Callable[..., str]:
    @wraps(draw)
    def drawing(*numbers: object) -> str:
        key = pickle.dumps((draw.__module__, draw.__name__, numbers))
        if key not in _drawn:
            _drawn[key] = draw(*numbers)
        return _drawn[key]

    return drawing


def schemes() -> dict[str, Mapping[str, str]]:
    """Variables of the light page, the dark one and paper."""
    css = (PAGES / "report.css").read_text(encoding="utf-8")
    light = _variables(css.split("@media", 1)[0])
    dark = _variables(_block(css, "@media screen and (prefers-color-scheme: dark)"))
    paper = _variables(_block(css, "@media print"))
    return {"light": light, "dark": {**light, **dark}, "paper": {**light, **paper}}


def _block(css: str, opening: str) -> str:
    inside = css[css.index(opening) :]
    return inside[inside.index(":root") : inside.index("}")]


def _variables(css: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+):\s*(#[0-9a-f]{3,6})\b", css))


def linear(colour: str) -> NDArray[np.float64]:
    """(3,) linear RGB, 0 to 1, of ``#rrggbb`` or ``#rgb``."""
    digits = colour.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    value = np.array([int(digits[place : place + 2], 16) for place in (0, 2, 4)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """From 1 to 21. Source: WCAG 2.2, relative luminance and contrast ratio."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(weights @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def distance(one: str, other: str, seen: NDArray[np.float64]) -> float:
    """How far apart two colours look, CIE 1976; about 2 can just be told, 100 lies between black and white."""
    first, second = (_lab(seen @ linear(colour)) for colour in (one, other))
    return float(np.linalg.norm(first - second))


def _lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb / np.array([0.95047, 1.0, 1.08883]), 0, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])
