"""A world on disk: ``scenes.json`` and a file for each image, sound or video."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from mitl.core.whole_files import is_disk_full
from mitl.datasets.files import read_json
from mitl.datasets.images import write_whole
from mitl.datasets.scenes.drawing import draw
from mitl.datasets.scenes.graph import Background, Color, Group, Relation, Scene, Shape, Size, Spot
from mitl.datasets.scenes.playing import render_sound, render_video
from mitl.datasets.scenes.truth import Assertion, Meaning, RelationAssertion
from mitl.datasets.scenes.world import WORLD_KINDS, Defect, Description, World
from mitl.errors import DatasetError
from mitl.progress import Progress, no_progress
from mitl.records import CaptionItem, ImageItem

WORLD_FILE = "scenes.json"


def write_world(world: World, folder: Path, progress: Progress = no_progress) -> None:
    """Write ``scenes.json`` and ``images/<id>.png`` (256 pixels square), or the sounds or videos; safe to run again.

    Each file appears whole or not at all, and ``scenes.json`` last: where it is, all others are. A second
    run draws only those that are missing.

    Raises:
        DatasetError: the folder holds another world, or cannot be written.
        UsageError: what writes videos is missing.
    """
    text = json.dumps(world_to_json(world), ensure_ascii=False, separators=(",", ":")) + "\n"
    content = text.encode()
    target = folder / WORLD_FILE
    try:
        complete = target.exists()
        if complete and target.read_bytes() != content:
            raise DatasetError(f"{target} holds another world; choose another folder or remove that one")
        with progress("draw scenes", total=len(world.scenes)) as advance:
            for image_id, scene in world.scenes.items():
                name = world.file_name(image_id)
                if name is not None and not (complete and (folder / name).exists()):
                    rendered = _RENDERERS[Path(name).suffix](scene)
                    write_whole(folder / name, rendered)
                advance(1)
        if not complete:
            write_whole(target, content)
    except OSError as error:
        remedy = "make room" if is_disk_full(error) else "mend that"
        why = (error.strerror or str(error)).lower()
        raise DatasetError(
            f"the scenes cannot be written to {folder}: {why}; {remedy} and run the command again"
        ) from error


def write_items(
    world: World, folder: Path, *, by_place: bool = False
) -> tuple[list[ImageItem], list[CaptionItem]]:
    """Write a world of pictures as ``write_world`` does; its pictures and captions as annotators take them.

    Args:
        by_place: number the items of each side from 0, and not as the world does.
    """
    write_world(world, folder)
    number_of = {i: place if by_place else int(i) for place, i in enumerate(world.scenes)}
    images = [ImageItem(number, i, folder / "images" / f"{i}.png") for i, number in number_of.items()]
    return images, [
        CaptionItem(place if by_place else int(i), i, number_of[c.image_id], c.text)
        for place, (i, c) in enumerate(world.captions.items())
    ]


def _picture(scene: Scene) -> bytes:
    buffer = io.BytesIO()
    draw(scene).save(buffer, format="PNG")
    return buffer.getvalue()


_RENDERERS = {".png": _picture, ".wav": render_sound, ".webm": render_video}
"""By the suffix of the file."""


def read_world(folder: Path) -> World:
    """The world that ``write_world`` wrote into the folder.

    Raises:
        DatasetError: ``scenes.json`` is missing, malformed or of another version.
    """
    path = folder / WORLD_FILE
    if not path.exists():
        raise DatasetError(f"there is no {path}; make one with `mitl init --dataset scenes`")
    value = read_json(path, "a world of scenes: restore it or make the project again")
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise DatasetError(f"{path} is not a world of scenes: its 'format' should be {FORMAT!r}")
    if value.get("version") != VERSION:
        raise DatasetError(
            f"{path} is of version {value.get('version')!r}, but this mitl reads version {VERSION}; "
            "make the project again"
        )
    try:
        return world_from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DatasetError(
            f"{path} is malformed ({error!r}); restore it or make the project again"
        ) from error


FORMAT = "mitl-scenes"
VERSION = 1

Json = dict[str, Any]


def world_to_json(world: World) -> Json:
    """The world as JSON values; ids are keys, in tie order."""
    return {
        "format": FORMAT,
        "version": VERSION,
        **({} if world.kind == "images" else {"kind": world.kind}),
        "seed": world.seed,
        "split": world.split,
        "defect_share": world.defect_share,
        "scenes": {id_: _scene_to_json(scene) for id_, scene in world.scenes.items()},
        "captions": {id_: _caption_to_json(caption) for id_, caption in world.captions.items()},
    }


def world_from_json(value: Json) -> World:
    """The world of ``world_to_json``; KeyError, TypeError or ValueError where the value is no such thing."""
    scenes = {id_: _scene_from_json(scene) for id_, scene in value["scenes"].items()}
    captions = {id_: _caption_from_json(caption) for id_, caption in value["captions"].items()}
    for id_, caption in captions.items():
        if caption.image_id not in scenes:
            raise ValueError(f"caption {id_!r} names image {caption.image_id!r}, which is not there")
    kind = str(value.get("kind", "images"))
    if kind not in WORLD_KINDS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(WORLD_KINDS)}")
    return World(
        int(value["seed"]), str(value["split"]), float(value["defect_share"]), scenes, captions, kind
    )


def _scene_to_json(scene: Scene) -> Json:
    return {
        "background": scene.background,
        "texture": scene.texture,
        "groups": [
            {
                "shape": group.shape,
                "color": group.color,
                "size": group.size,
                "radius": group.radius,
                "spots": [[spot.x, spot.y, spot.turn] for spot in group.spots],
            }
            for group in scene.groups
        ],
    }


def _scene_from_json(value: Json) -> Scene:
    groups = tuple(
        Group(
            Shape(group["shape"]),
            Color(group["color"]),
            Size(group["size"]),
            int(group["radius"]),
            tuple(Spot(int(x), int(y), int(turn)) for x, y, turn in group["spots"]),
        )
        for group in value["groups"]
    )
    if not groups or not all(group.spots for group in groups):
        raise ValueError("a scene needs a group, and a group an object")
    return Scene(Background(value["background"]), int(value["texture"]), groups)


def _caption_to_json(caption: Description) -> Json:
    meaning = caption.meaning
    return {
        "image": caption.image_id,
        "text": caption.text,
        **({} if caption.reference is None else {"reference": caption.reference}),
        "defect": caption.defect,
        "objects": [
            {"shape": told.shape, "color": told.color, "size": told.size, "quantity": told.quantity}
            for told in meaning.objects
        ],
        "relations": [[link.subject, link.relation, link.other] for link in meaning.relations],
        "background": meaning.background,
    }


def _caption_from_json(value: Json) -> Description:
    objects = tuple(
        Assertion(
            Shape(told["shape"]),
            None if told["color"] is None else Color(told["color"]),
            None if told["size"] is None else Size(told["size"]),
            None if told["quantity"] is None else int(told["quantity"]),
        )
        for told in value["objects"]
    )
    relations = tuple(
        RelationAssertion(Shape(subject), Relation(relation), Shape(other))
        for subject, relation, other in value["relations"]
    )
    background = None if value["background"] is None else Background(value["background"])
    defect = None if value["defect"] is None else Defect(value["defect"])
    return Description(
        str(value["image"]),
        str(value["text"]),
        Meaning(objects, relations, background),
        defect,
        value.get("reference"),
    )
