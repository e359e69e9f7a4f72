"""Releases and projects of every form of data sets, on the ids of ``release_kit``, with files of a few bytes."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable
from pathlib import Path

from PIL import Image as Picture
from release_kit import CAPTIONS, IMAGES
from scored_kit import make

from mitl.datasets.assembling import assemble
from mitl.records import Caption, IdKind, Image, PartKind
from mitl.records.forms import SET_FORMS, SetForm
from mitl.settings import load
from mitl.stages.setup.init import ensure_config, init
from mitl.stages.setup.loading import Loaded

SUFFIXES = {PartKind.IMAGE: "png", PartKind.AUDIO: "wav", PartKind.VIDEO: "gif"}


def references_of(form: SetForm, kind: IdKind = IdKind.STRING) -> dict[str, str]:
    """Composed query → the image that its text changes, by external id; nothing of another form."""
    prefix = "" if kind is IdKind.INTEGER else "item-"
    lefts = [f"{prefix}{10 * n:02}" for n in IMAGES]
    return {f"{prefix}{100 * n}": lefts[n % len(lefts)] for n in CAPTIONS} if form.composed else {}


def make_project(folder: Path, form: SetForm, kind: IdKind = IdKind.STRING) -> None:
    """A project whose items are those of ``scored_kit.make``, each with what its form asks for."""
    prefix = "" if kind is IdKind.INTEGER else "item-"
    lefts = [f"{prefix}{10 * n:02}" for n in IMAGES]
    files = {} if form.left_part is PartKind.TEXT else {one: _file(folder, form, one) for one in lefts}
    images = [
        Image(
            one,
            files.get(one),
            texts=() if files else (f"Title {at}" if at % 2 else "", f"text <{at}> of {one}"),
        )
        for at, one in enumerate(lefts)
    ]
    references = references_of(form, kind)
    captions = [
        Caption(
            f"{prefix}{100 * n}",
            lefts[(n - 1) // 5],
            f"words of {n}, مرحبا",
            references.get(f"{prefix}{100 * n}"),
        )
        for n in CAPTIONS
    ]
    data = assemble("small", "table", images, captions, source="a test", sides=form.sides)
    ensure_config(folder, "test", 0, {"dataset": {"kind": "table"}})
    init(load(folder, environ={}), Loaded(data))


def scored_projects(new_folder: Callable[[str], Path]) -> dict[tuple[str, str], Path]:
    """A project a form, by its sides, with a release and a model whose similarities are full of ties."""
    made = {}
    for form in SET_FORMS.values():
        made[form.sides] = folder = new_folder(form.ways[1])
        make(folder, IdKind.STRING, sides=form.sides, references=references_of(form))
        make_project(folder, form)
    return made


def _file(folder: Path, form: SetForm, item: str) -> str:
    path = folder / "files" / f"{item}.{SUFFIXES[form.left_part]}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(_content(form.left_part, int(item.removeprefix("item-"))))
    return str(path)


def _content(kind: PartKind, number: int) -> bytes:
    """A picture, a sound or a video of this number; the video is a moving GIF, which FFmpeg reads as any other."""
    sink = io.BytesIO()
    if kind is PartKind.IMAGE:
        Picture.new("RGB", (4, 4), (number, 0, 0)).save(sink, "PNG")
    elif kind is PartKind.AUDIO:
        with wave.open(sink, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(number.to_bytes(2, "little") * 80)
    else:
        first, second = (Picture.new("RGB", (16, 16), (number, green, 0)) for green in (0, 200))
        first.save(sink, "GIF", save_all=True, append_images=[second], duration=200)
    return sink.getvalue()
