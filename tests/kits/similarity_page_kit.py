"""Pages of ratings for tests: what stands on them, and how a page is served."""

from __future__ import annotations

from typing import Any

import pytest
from hit_page_kit import Site

from mitl.campaign.kinds import wording_of
from mitl.campaign.kinds.similarity.packing import ShownPair, render_similarity
from mitl.hits.templates import HitTemplate

TEXTS, IMAGES, MIXED = NAMES = ("similarity-texts", "similarity-images", "similarity-mixed")
DESK = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
SIZES = [pytest.param(DESK, id="1280"), pytest.param(PHONE, id="390")]
WORDS = "A rather long sentence on what somebody saw on a day by the sea, number"


def template(name: str) -> HitTemplate:
    """One of the kind's own wordings."""
    return wording_of("similarity", name, None)


def item(name: str, place: int, first: str, second: str) -> ShownPair:
    """What a page of this wording shows of two texts or addresses."""
    if name == TEXTS:
        return ShownPair(place, first, "", second, "")
    if name == IMAGES:
        return ShownPair(place, "", first, "", second)
    return ShownPair(place, "", first, second, "")


def items(name: str, count: int, *, missing: bool = False) -> list[ShownPair]:
    """This many pairs; with ``missing`` the first one's image does not load."""
    address = "/i/missing.png" if missing else "/i/1a.png"
    return [
        item(
            name,
            place,
            f"{WORDS} {place}." if name == TEXTS else address if place == 1 else f"/i/{place}a.png",
            f"/i/{place}b.png" if name == IMAGES else f"{WORDS} {place}, told otherwise.",
        )
        for place in range(1, count + 1)
    ]


def show(site: Site, name: str, count: int = 3, *, missing: bool = False) -> str:
    """Serve a page of this many pairs; its path."""
    page = items(name, count, missing=missing)
    site.pages[f"/{name}"] = render_similarity(template(name), page, contact=None, estimate_s=60)
    return f"/{name}"


def score(page: Any, place: int) -> str:
    """What the place would send; empty where nothing was answered."""
    return str(page.input_value(f"[name=p{place:02d}_score]"))


def click_at(page: Any, place: int, value: float, *, tap: bool = False) -> None:
    """Click or tap the line of a place where this score stands."""
    line = page.locator(f"#p{place:02d} .slide")
    width = line.bounding_box()["width"]
    (line.tap if tap else line.click)(position={"x": width * value / 5, "y": 24})


def thumb(page: Any, place: int) -> bool:
    """Whether a place shows a thumb."""
    return bool(page.locator(f"#p{place:02d} .slide i").is_visible())


def sent(site: Site) -> dict[str, str]:
    """The fields of the one post, without times."""
    ((_, fields),) = site.posted
    return {name: value for name, value in fields if not name.endswith("_ms")}
