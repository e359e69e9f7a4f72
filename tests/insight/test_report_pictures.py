"""Pictures in the report: small, within their budget, and never the cause of a failure."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
from PIL import Image
from report_sample import picture

from mitl.analysis.report.views import data_uri, picture_uris


def opened(uri: str) -> Image.Image:
    """The picture of a ``data:`` URI."""
    head, _, body = uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(body)))


def noise(path: Path, size: int) -> Path:
    """A picture that compresses badly."""
    Image.effect_noise((size, size), 90).save(path)
    return path


def test_a_picture_becomes_a_small_jpeg_of_the_same_shape(tmp_path: Path) -> None:
    """480 x 360 becomes 240 x 180; a smaller one keeps its size."""
    wide = data_uri(picture(tmp_path / "a.png", 1), width=240, quality=75)
    small = data_uri(picture(tmp_path / "b.png", 1, size=(160, 200)), width=240, quality=75)

    assert wide is not None
    assert small is not None
    assert opened(wide).size == (240, 180)
    assert opened(small).size == (160, 200)


def test_transparency_becomes_white_and_metadata_stays_behind(tmp_path: Path) -> None:
    """A transparent PNG is white on the page; a camera's EXIF, with its place and time, is gone."""
    clear, camera = tmp_path / "clear.png", tmp_path / "camera.jpg"
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(clear)
    exif = Image.Exif()
    exif[0x010F] = "a maker"
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (40, 20), "blue").save(camera, exif=exif)

    white = data_uri(clear, width=240, quality=75)
    turned = data_uri(camera, width=240, quality=75)

    assert white is not None
    assert turned is not None
    assert opened(white).getpixel((4, 4)) == (255, 255, 255)
    assert opened(turned).size == (20, 40)
    assert dict(opened(turned).getexif()) == {}


@pytest.mark.parametrize("content", [None, b"", b"not a picture", b"\x89PNG\r\n\x1a\n broken"])
def test_a_file_that_is_no_picture_is_left_out(tmp_path: Path, content: bytes | None) -> None:
    """Missing, empty, foreign and broken files give None instead of an error."""
    file = tmp_path / "x.png"
    if content is not None:
        file.write_bytes(content)

    assert data_uri(file, width=240, quality=75) is None


def test_all_pictures_get_smaller_before_any_is_left_out(tmp_path: Path) -> None:
    """With a budget for two thirds of the bytes, both stay and both are narrower than 240."""
    files = [noise(tmp_path / f"{i}.png", 300) for i in range(2)]
    full = picture_uris(files, budget_bytes=10**9)
    budget = 2 * sum(map(len, full.values())) // 3

    tight = picture_uris(files, budget_bytes=budget)

    assert set(tight) == set(files)
    assert sum(map(len, tight.values())) <= budget
    assert all(opened(uri).width < 240 for uri in tight.values())


def test_a_picture_that_is_shown_twice_costs_twice(tmp_path: Path) -> None:
    """The budget is that of the page, so the first stays and the one that no longer fits goes."""
    first, second = noise(tmp_path / "a.png", 120), noise(tmp_path / "b.png", 120)
    smallest = data_uri(first, width=120, quality=45)
    assert smallest is not None

    kept = picture_uris([first, first, second], budget_bytes=2 * len(smallest))

    assert list(kept) == [first]
    assert picture_uris([first], budget_bytes=0) == {}
