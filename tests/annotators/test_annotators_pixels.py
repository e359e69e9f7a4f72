"""The official image transforms, on drawn and on real images, and images that cannot be read."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import EpsImagePlugin, Image, PngImagePlugin, features
from PIL.Image import DecompressionBombWarning
from PIL.PngImagePlugin import PngInfo

from annotators.inputs import pixels
from annotators.inputs.pixels import clip_pixels, imagenet_pixels, read_rgb, vilt_pixels, vilt_size
from mitl.core.pictures import FORMATS, page_jpeg
from mitl.errors import AnnotatorError
from mitl.records import ImageItem, PartKind

TRANSFORMS: list[Callable[..., np.ndarray]] = [imagenet_pixels, clip_pixels, vilt_pixels]


def drawn(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """Coloured blocks with noise, so that a crop that is one pixel off shows."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (height // 7 + 1, width // 7 + 1, 3)).repeat(7, 0).repeat(7, 1)
    noisy = np.clip(blocks[:height, :width] + rng.integers(-9, 10, (height, width, 3)), 0, 255)
    return Image.fromarray(noisy.astype(np.uint8)).convert(mode)


def official_square(
    image: Image.Image,
    shorter: int,
    size: int,
    resample: Image.Resampling,
    mean: list[float],
    std: list[float],
) -> np.ndarray:
    """The 224-pixel transforms written again from their description, with torch's arithmetic."""
    w, h = image.size
    new = (shorter, int(shorter * h / w)) if w <= h else (int(shorter * w / h), shorter)
    image = image.resize(new, resample)
    top, left = round((new[1] - size) / 2.0), round((new[0] - size) / 2.0)
    image = image.crop((left, top, left + size, top + size)).convert("RGB")
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().to(torch.float32).div(255)
    return x.sub_(torch.tensor(mean)[:, None, None]).div_(torch.tensor(std)[:, None, None]).numpy()


SIZES = [
    (640, 427),
    (427, 640),
    (640, 480),
    (500, 375),
    (612, 612),
    (300, 200),
    (64, 900),
    (224, 224),
    (33, 31),
    (1, 1),
]


@pytest.mark.parametrize("size", SIZES)
def test_the_square_transforms_follow_their_description(size: tuple[int, int]):
    """Resize, crop rounded half to even, scale and normalise: equal to the last bit."""
    image = drawn(*size)

    for_imagenet = official_square(
        image, 256, 224, Image.Resampling.BILINEAR, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )
    for_clip = official_square(
        image,
        224,
        224,
        Image.Resampling.BICUBIC,
        [0.48145466, 0.4578275, 0.40821073],
        [0.26862954, 0.26130258, 0.27577711],
    )

    assert np.array_equal(imagenet_pixels(image), for_imagenet)
    assert np.array_equal(clip_pixels(image), for_clip)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((640, 427), (576, 384)),
        ((640, 480), (512, 384)),
        ((500, 375), (512, 384)),
        ((612, 612), (384, 384)),
        ((640, 213), (608, 192)),
        ((427, 640), (384, 576)),
    ],
)
def test_vilt_sizes(before: tuple[int, int], after: tuple[int, int]):
    """The examples of the specification, (width, height)."""
    assert vilt_size(*before) == after
    assert vilt_pixels(drawn(*before)).shape == (3, after[1], after[0])


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 2000), st.integers(1, 2000), st.sampled_from([(384, 32), (64, 8), (96, 16)]))
def test_vilt_sizes_are_whole_patches_within_bounds(width: int, height: int, scale: tuple[int, int]):
    """Multiples of the patch, no side above the bound, turned with the image."""
    shorter, patch = scale

    wide, high = vilt_size(width, height, shorter, patch)

    assert wide % patch == high % patch == 0
    assert max(wide, high) <= int(1333 / 800 * shorter)
    assert vilt_size(height, width, shorter, patch) == (high, wide)


@pytest.mark.parametrize("size", [64, 96])
def test_small_networks_get_the_same_transform_in_small(size: int):
    """The resized side keeps the proportion 256 to 224."""
    image = drawn(90, 70)

    found = imagenet_pixels(image, size)

    shorter = round(256 / 224 * size)
    expected = official_square(
        image, shorter, size, Image.Resampling.BILINEAR, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    )
    assert np.array_equal(found, expected)
    assert clip_pixels(image, size).shape == (3, size, size)
    assert vilt_pixels(image, size, 8).shape == (3, size, 80 if size == 64 else 120)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1", "YCbCr", "I;16"])
def test_every_mode_becomes_rgb(tmp_path: Path, transform: Callable[..., np.ndarray], mode: str):
    """Grey, palette, transparent, CMYK and images of 8 bits in 16 are converted by Pillow's rules."""
    if mode == "YCbCr" and features.version("pil") < "13":
        pytest.skip("earlier versions of Pillow cannot read the TIFF that they write of it")
    image = drawn(80, 60).convert("L").convert("I").convert("I;16") if mode == "I;16" else drawn(80, 60, mode)
    path = tmp_path / ("image.tif" if mode in ("CMYK", "YCbCr", "I;16") else "image.png")
    image.save(path)

    found = transform(path)

    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert np.isfinite(found).all()
    assert np.array_equal(found, transform(Image.open(path)))
    if mode == "L":
        assert np.array_equal(found, transform(image.convert("RGB")))


def test_clip_resizes_a_palette_before_it_converts():
    """CLIP's code converts after the crop, so a palette is resized by its nearest entries."""
    image = drawn(300, 260, "P")

    assert not np.array_equal(clip_pixels(image), clip_pixels(image.convert("RGB")))


def test_orientation_in_the_exif_data_is_not_applied(tmp_path: Path):
    """The official code opens and converts; a picture that lies on its side stays so."""
    image, exif = drawn(80, 60), Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    image.save(tmp_path / "plain.png")

    assert read_rgb(tmp_path / "turned.png").size == (80, 60)
    assert np.array_equal(clip_pixels(tmp_path / "turned.png"), clip_pixels(tmp_path / "plain.png"))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG2000", "PPM"])
def test_grey_of_16_bits_is_grey_to_people_and_networks(tmp_path: Path, kind: str):
    """Its higher eight bits are what is seen; a grey that such a PNG calls transparent, too."""
    grey, path = np.arange(0, 2**16, 16, dtype=np.uint16).reshape(64, 64), tmp_path / "scan"
    Image.fromarray(grey).save(path, kind, **({"transparency": 4000} if kind == "PNG" else {}))

    for seen in (read_rgb(path), Image.open(io.BytesIO(page_jpeg(path)))):
        assert np.abs(np.asarray(seen).astype(int) - (grey >> 8)[:, :, None]).max() <= 5
    assert np.array_equal(clip_pixels(path), clip_pixels(Image.fromarray((grey >> 8).astype(np.uint8))))


def test_an_item_is_read_from_its_file(tmp_path: Path):
    """Items of a data set, paths and open images give the same numbers."""
    path = tmp_path / "a.png"
    drawn(80, 60).save(path)
    item = ImageItem(1, "391895", path)

    for transform in TRANSFORMS:
        assert np.array_equal(transform(item), transform(path))


# Images that cannot be read


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header promises far more pixels than it has."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg(tmp_path: Path) -> bytes:
    drawn(200, 150).save(tmp_path / "good.jpg")
    return (tmp_path / "good.jpg").read_bytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read_whatever_the_file_is_called(tmp_path: Path, kind: str):
    """As long as the Pillow at hand can decode it."""
    path = tmp_path / "cat.jpg"
    Image.new("RGB", (64, 48), "teal").save(path, kind)

    assert read_rgb(path).size == (64, 48)
    assert page_jpeg(path).startswith(b"\xff\xd8")


@pytest.mark.parametrize("read", [read_rgb, page_jpeg])
def test_postscript_under_a_pictures_name_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
):
    """Pillow would hand it to Ghostscript, which runs it as a program."""
    program, path = tmp_path / "gs", tmp_path / "cat.jpg"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    path.write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\n%%Page: 1 1\nshowpage\n%%EOF\n"
    )

    with pytest.raises((AnnotatorError, OSError), match="cannot identify image file"):
        read(path)

    assert not (tmp_path / "ran").exists()


def test_a_picture_with_spoiled_bytes_is_one_clear_line_or_an_os_error(tmp_path: Path):
    """Whatever they hit: to annotators one line, to pages what they tell of as of a file that cannot be read."""
    path, about = tmp_path / "a.png", PngInfo()
    about.add_text("Comment", "x" * (2 * PngImagePlugin.MAX_TEXT_CHUNK), zip=True)
    drawn(30, 20).save(path, pnginfo=about)
    with pytest.raises(OSError, match="too large"):
        page_jpeg(path)
    for kind in ("PNG", "AVIF", "WEBP"):
        drawn(30, 20).save(path, kind)
        raw = path.read_bytes()
        for at in range(0, len(raw), 11):
            path.write_bytes(raw[:at] + bytes(byte ^ 0xFF for byte in raw[at : at + 2]) + raw[at + 2 :])
            with suppress(OSError):
                page_jpeg(path)
            with suppress(AnnotatorError):
                read_rgb(path)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cut", "not readable as an image"),
        ("empty", "not readable as an image"),
        ("text", "not readable as an image"),
        ("broken", "not readable as an image"),
        ("bomb", "too large an image"),
        ("small bomb", "too large an image"),
    ],
)
def test_what_does_not_decode_gives_one_line(
    tmp_path: Path, transform: Callable[..., np.ndarray], name: str, message: str
):
    """The file is named, and nothing is filled in for the missing part."""
    content = {
        "cut": lambda: jpeg(tmp_path)[:3000],
        "empty": lambda: b"",
        "text": lambda: b"<html>404</html>",
        "broken": lambda: bomb(60, 60),
        "bomb": lambda: bomb(60000, 60000),
        "small bomb": lambda: bomb(10000, 10000),
    }[name]()
    path = tmp_path / "COCO_val2014_000000391895.jpg"
    path.write_bytes(content)

    with pytest.raises(AnnotatorError, match=message) as caught:
        transform(ImageItem(1, "391895", path))

    assert "\n" not in str(caught.value)
    assert "000000391895" in str(caught.value)


def test_pictures_that_are_read_side_by_side_leave_each_other_alone(tmp_path: Path):
    """While one is decoded another may end: a bomb is still refused, and no warning of others is lost afterwards."""
    (tmp_path / "bomb.png").write_bytes(bomb(10000, 10000))
    before = list(warnings.filters)
    one, other = pixels._decoding(tmp_path / "one"), pixels._decoding(tmp_path / "other")
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    with pytest.raises(DecompressionBombWarning), Image.open(tmp_path / "bomb.png"):
        pass
    other.__exit__(None, None, None)

    assert warnings.filters == before


def test_damage_anywhere_gives_pixels_or_one_line(tmp_path: Path):
    """Flipped bytes in PNG and JPEG files are never a traceback."""
    rng, path = np.random.default_rng(5), tmp_path / "bad"
    drawn(40, 30).save(tmp_path / "good.png")
    for good in (jpeg(tmp_path), (tmp_path / "good.png").read_bytes()):
        for _ in range(60):
            bad = bytearray(good)
            for place in rng.integers(0, len(good), 5):
                bad[place] = rng.integers(256)
            path.write_bytes(bad)
            try:
                clip_pixels(path)
            except AnnotatorError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_missing_files_are_named(tmp_path: Path, transform: Callable[..., np.ndarray]):
    """An item without a file, one whose file is gone, and one whose file is no picture's but a whole sound's."""
    sound = ImageItem(1, "7", tmp_path / "7.wav", kind=PartKind.AUDIO)
    with pytest.raises(
        AnnotatorError, match="item '7' is of kind 'audio', and this annotator looks at pictures"
    ):
        transform(sound)
    with pytest.raises(AnnotatorError, match="image '7' has no file; this annotator looks at pixels"):
        transform(ImageItem(1, "7", url="https://example.org/7.jpg"))
    with pytest.raises(AnnotatorError, match=r"image '7' should be in .*, which is missing"):
        transform(ImageItem(1, "7", tmp_path / "7.jpg"))
    with pytest.raises(AnnotatorError, match="not readable as an image"):
        transform(ImageItem(1, "7", tmp_path))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_strip_is_refused_in_one_line(transform: Callable[..., np.ndarray]):
    """What would become gigabytes or no pixels at all is named by its size."""
    with pytest.raises(
        AnnotatorError, match=r"30000 x 2 pixels, too long and narrow a strip.*; crop the file"
    ):
        transform(Image.new("RGB", (30000, 2)))


# Real images


@pytest.mark.shared
def test_real_images_agree_with_the_ports_processors(shared_data: Path):
    """ViLT's are equal to the bit on all; CLIP's are, but for crops whose offset the port rounds down."""
    pytest.importorskip("transformers.models.clip.image_processing_pil_clip", reason="transformers is older")
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.vilt.image_processing_pil_vilt import ViltImageProcessorPil

    for_clip, for_vilt = CLIPImageProcessorPil(), ViltImageProcessorPil()
    moved = equal = 0
    for path in sorted((shared_data / "coco_test_images" / "images").glob("*.jpg"))[:40]:
        image = read_rgb(path)
        port = for_clip(image, return_tensors="np")["pixel_values"][0]
        longer = int(224 * max(image.size) / min(image.size))
        if (longer - 224) % 4 == 3:
            moved += 1
            assert np.abs(clip_pixels(path) - port).mean() > 0.02
        else:
            equal += 1
            assert np.array_equal(clip_pixels(path), port)
        assert np.array_equal(vilt_pixels(path), for_vilt(image, return_tensors="np")["pixel_values"][0])

    assert min(moved, equal) >= 5


@pytest.mark.shared
def test_real_images_follow_the_description(shared_data: Path):
    """All sizes that COCO has, by the transform written a second time."""
    paths = sorted((shared_data / "coco_test_images" / "images").glob("*.jpg"))[::4]

    for path in paths:
        expected = official_square(
            Image.open(path).convert("RGB"),
            256,
            224,
            Image.Resampling.BILINEAR,
            list(pixels.IMAGENET_MEAN),
            list(pixels.IMAGENET_STD),
        )
        assert np.array_equal(imagenet_pixels(path), expected), path.name
