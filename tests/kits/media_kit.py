"""Tiny sounds and videos that browsers play."""

from __future__ import annotations

import io
import wave
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture

from mitl.progress import no_progress
from mitl.records import Caption, IdKind, Image, RetrievalSet
from mitl.records.forms import COMPOSED, SOUNDS, VIDEOS, SetForm
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.setup.init import ensure_config, init
from mitl.stages.setup.loading import Loaded


@cache
def tone(seconds: float = 1.0, hertz: float = 440.0, rate: int = 8000, level: int = 8000) -> bytes:
    """A WAV file of one tone; of level 0, silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        times = np.arange(int(seconds * rate)) / rate
        sound.writeframes((level * np.sin(2 * np.pi * hertz * times)).astype("<i2").tobytes())
    return file.getvalue()


@cache
def jpeg(colour: str) -> bytes:
    """A small picture of one colour."""
    file = io.BytesIO()
    Picture.new("RGB", (8, 6), colour).save(file, "JPEG")
    return file.getvalue()


@cache
def clip(seconds: float = 1.0, color: int = 0) -> bytes:
    """A WebM file in which a bar moves over a field of one grey."""
    av = pytest.importorskip("av", reason="pip package av is missing")
    file = io.BytesIO()
    with av.open(file, "w", format="webm") as video:
        stream = video.add_stream("libvpx", rate=10, options={"deadline": "realtime"})
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for step in range(int(seconds * 10)):
            picture = np.full((120, 160, 3), 40 + color, np.uint8)
            picture[40:80, step * 10 : step * 10 + 30] = (240, 180, 40)
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                video.mux(packet)
        for packet in stream.encode():
            video.mux(packet)
    return file.getvalue()


@cache
def picture(shade: float) -> bytes:
    """A PNG file of one grey."""
    file = io.BytesIO()
    grey = int(255 * shade) % 256
    Picture.new("RGB", (64, 48), (grey, grey, grey)).save(file, "PNG")
    return file.getvalue()


FILES = {SOUNDS.sides: ("wav", tone), VIDEOS.sides: ("webm", clip), COMPOSED.sides: ("png", picture)}


def media_set(folder: Path, form: SetForm, n: int = 12) -> RetrievalSet:
    """n items whose files lie in a folder, each with two texts; a composed query changes the item before its own."""
    suffix, make = FILES[form.sides]
    (folder / "media").mkdir(parents=True)
    items, texts = [], []
    for at in range(n):
        path = folder / "media" / f"{at}.{suffix}"
        path.write_bytes(make(0.3 + at / 100))
        items.append(Image(str(at), str(path)))
        before = str((at - 1) % n) if form.composed else None
        texts += [Caption(f"{at}{x}", str(at), f"Text {at}{x} <of> it.", before) for x in "ab"]
    return RetrievalSet("media", "table", IdKind.STRING, tuple(items), tuple(texts), sides=form.sides)


def media_project(folder: Path, form: SetForm, n: int = 12) -> Settings:
    """A project on such a set with two annotators from embedding files."""
    data = media_set(folder, form, n)
    rng = np.random.default_rng(0)
    items = rng.normal(size=(n, 8)).astype(np.float32)
    sides = {
        "images": ([i.external_id for i in data.images], items),
        "captions": ([c.external_id for c in data.captions], np.repeat(items, 2, axis=0)),
    }
    for side, (ids, vectors) in sides.items():
        np.savez(folder / f"near-{side}.npz", ids=np.array(ids), embedding=vectors)
    files = {side: f"near-{side}.npz" for side in sides}
    tables = {"dataset": {"kind": "table"}, "annotators": {"near": {"embeddings": files}}}
    ensure_config(folder, "media", 0, {**tables, "propose": {"annotators": ["near"]}})
    settings = replace(load_settings(folder, environ={}), endpoint=None)
    init(settings, Loaded(data))
    return settings


def proposed_media(folder: Path, form: SetForm, n: int = 12) -> Settings:
    """The same with proposed pairs."""
    settings = media_project(folder, form, n)
    choice = QueryChoice(n)
    propose(
        settings,
        ProposeRequest(annotators=["near"], top_k=3, depth=5, images=choice, captions=choice),
        progress=no_progress,
    )
    return settings
