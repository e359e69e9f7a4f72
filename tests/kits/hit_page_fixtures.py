"""Fixtures of a server that shows HIT pages; with ``browser_fixtures``, by ``pytest_plugins``."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hit_page_kit import Site


@pytest.fixture
def site() -> Iterator[Site]:
    """The server with one picture."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (64, 48), "teal").save(file, "PNG")
    site = Site(file.getvalue())
    yield site
    site.close()


@pytest.fixture
def open_page(site: Site, new_page: Callable[..., Any]) -> Callable[..., Any]:
    """Opens an address of the site in a window of its own, which is closed before the site is."""

    def opened(path: str, **options: Any) -> Any:
        page = new_page(**options)
        page.goto(site.url + path)
        return page

    return opened
