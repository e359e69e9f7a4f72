"""A crowd server with real HIT pages and images, once for a module; by ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crowd_kit import engine_of, running_crowd
from town_kit import PLACES, Town


@pytest.fixture(scope="module")
def town(crowd_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A running server with twenty images."""
    from PIL import Image, ImageDraw

    folder = tmp_path_factory.mktemp("town")
    for place in range(1, PLACES + 1):
        image = Image.new("RGB", (320, 240), (10 * place, 120, 240 - 10 * place))
        ImageDraw.Draw(image).ellipse((100, 60, 220, 180), fill="white")
        image.save(folder / f"{place:032x}.png")
    with engine_of(crowd_template, folder) as engine, running_crowd(engine, public=folder) as crowd:
        yield Town(crowd, crowd.boto())
