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
    """Opens an address of the site in a window of its own, which is closed before the site is.

    Where a test waits for what the page does after a while, it moves the page's ``clock``.
    """

    def opened(path: str, *, clock: bool = False, **options: Any) -> Any:
        page = new_page(**options)
        if clock:
            page.clock.install()
        page.goto(site.url + path)
        return page

    return opened
