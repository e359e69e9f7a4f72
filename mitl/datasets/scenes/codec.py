"""A world as JSON values and back, with everything that its truth follows from."""

from __future__ import annotations

from typing import Any

from mitl.datasets.scenes.graph import Background, Color, Group, Relation, Scene, Shape, Size, Spot
from mitl.datasets.scenes.truth import Assertion, Meaning, RelationAssertion
from mitl.datasets.scenes.world import Defect, Description, World

FORMAT = "mitl-scenes"
VERSION = 1

Json = dict[str, Any]


def world_to_json(world: World) -> Json:
    """The world as JSON values; ids are keys, in tie order."""
    return {
        "format": FORMAT,
        "version": VERSION,
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
    return World(int(value["seed"]), str(value["split"]), float(value["defect_share"]), scenes, captions)


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
        str(value["image"]), str(value["text"]), Meaning(objects, relations, background), defect
    )
