"""A world on disk: ``scenes.json`` and one PNG for each image."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

from mitl.datasets.scenes.codec import FORMAT, VERSION, world_from_json, world_to_json
from mitl.datasets.scenes.drawing import draw
from mitl.datasets.scenes.world import World
from mitl.errors import DatasetError
from mitl.progress import Progress, no_progress

WORLD_FILE = "scenes.json"
IMAGES = "images"


def write_world(world: World, folder: Path, progress: Progress = no_progress) -> None:
    """Write ``scenes.json`` and ``images/<id>.png`` (256 pixels square) into the folder; safe to run again.

    Each file appears whole or not at all, and ``scenes.json`` last: where it is, all pictures are. A second
    run draws only the pictures that are missing.

    Raises:
        DatasetError: the folder holds another world, or cannot be written.
    """
    text = json.dumps(world_to_json(world), ensure_ascii=False, separators=(",", ":")) + "\n"
    content = text.encode()
    target = folder / WORLD_FILE
    try:
        complete = target.exists()
        if complete and target.read_bytes() != content:
            raise DatasetError(f"{target} holds another world; choose another folder or remove that one")
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        with progress("draw scenes", total=len(world.scenes)) as advance:
            for image_id, scene in world.scenes.items():
                picture = folder / IMAGES / f"{image_id}.png"
                if not (complete and picture.exists()):
                    buffer = io.BytesIO()
                    draw(scene).save(buffer, format="PNG")
                    _write_whole(picture, buffer.getvalue())
                advance(1)
        if not complete:
            _write_whole(target, content)
    except OSError as error:
        raise DatasetError(f"the scenes cannot be written to {folder}: {error}") from error


def read_world(folder: Path) -> World:
    """The world that ``write_world`` wrote into the folder.

    Raises:
        DatasetError: ``scenes.json`` is missing, malformed or of another version.
    """
    path = folder / WORLD_FILE
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DatasetError(f"there is no {path}; make one with `mitl init --dataset scenes`") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise DatasetError(
            f"{path} is not valid JSON ({error}); restore it or make the project anew"
        ) from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise DatasetError(f"{path} is no world of scenes: its 'format' should be {FORMAT!r}")
    if value.get("version") != VERSION:
        raise DatasetError(
            f"{path} is of version {value.get('version')!r}, but this mitl reads version {VERSION}; "
            "make the project anew"
        )
    try:
        return world_from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(f"{path} is malformed ({error!r}); restore it or make the project anew") from error


def _write_whole(path: Path, content: bytes) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
