"""A world of scenes with five captions each: a data set whose every pair has a known truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from mitl.datasets.scenes.composing import compose
from mitl.datasets.scenes.describing import describe
from mitl.datasets.scenes.graph import CANVAS, Scene
from mitl.datasets.scenes.streams import Stream
from mitl.datasets.scenes.truth import Meaning, Truth, truth
from mitl.datasets.scenes.wording import say
from mitl.errors import DatasetError
from mitl.records import Caption, IdKind, Image, RetrievalSet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

CAPTIONS_PER_IMAGE = 5
DEFECT_SHARE = 0.015
IMAGE_FOLDER = "dataset/images"
"""Where a project keeps the pictures; the files of the retrieval set are relative to the project."""


class Defect(StrEnum):
    """What is wrong with an original caption, as with some of every real data set."""

    MEANINGLESS = "meaningless"
    """It asserts nothing."""
    WRONG = "wrong"
    """It describes some other picture; it is not positive of its own image."""


@dataclass(frozen=True, slots=True)
class Description:
    """One caption of a world: its image, its text, what the text means, and what is wrong with it."""

    image_id: str
    text: str
    meaning: Meaning
    defect: Defect | None = None


@dataclass(frozen=True)
class World:
    """Scenes and captions by external id (images from "1", captions from "1"), and how they were made."""

    seed: int
    split: str
    defect_share: float
    scenes: Mapping[str, Scene]
    captions: Mapping[str, Description]

    @cached_property
    def meanings(self) -> dict[str, Meaning]:
        """What each caption asserts, by external id."""
        return {caption_id: caption.meaning for caption_id, caption in self.captions.items()}

    @cached_property
    def defects(self) -> dict[str, Defect]:
        """The defective originals, by caption id."""
        return {id_: caption.defect for id_, caption in self.captions.items() if caption.defect is not None}

    @cached_property
    def retrieval_set(self) -> RetrievalSet:
        """Images and captions as any reader gives them; files relative to the project."""
        images = (
            Image(image_id, file=f"{IMAGE_FOLDER}/{image_id}.png", width=CANVAS, height=CANVAS)
            for image_id in self.scenes
        )
        captions = (Caption(id_, caption.image_id, caption.text) for id_, caption in self.captions.items())
        return RetrievalSet("scenes", "scenes", IdKind.INTEGER, tuple(images), tuple(captions))

    def truth(self, image_id: str, caption_id: str) -> Truth:
        """The truth of one pair with its rationale; DatasetError for an id that this world lacks."""
        (scene,) = self._look_up([image_id], self.scenes)
        (meaning,) = self._look_up([caption_id], self.meanings)
        return truth(scene, meaning)

    def _look_up(self, ids: Sequence[str], known: Mapping[str, T]) -> list[T]:
        try:
            return [known[id_] for id_ in ids]
        except KeyError as error:
            kind = "image" if known is self.scenes else "caption"
            raise DatasetError(
                f"no {kind} {error.args[0]!r} in this world; ids run from 1 to {len(known)}"
            ) from None


def truth_matrix(world: World, image_ids: Sequence[str], caption_ids: Sequence[str]) -> NDArray[np.int8]:
    """Label codes 1 (yes) to 4 (no) of all pairs, (Q, G) int8: images down, captions across.

    Raises:
        DatasetError: an id that the world lacks.
    """
    from mitl.datasets.scenes.matrix import label_codes

    return label_codes(world._look_up(image_ids, world.scenes), world._look_up(caption_ids, world.meanings))


def generate(n_images: int, *, seed: int, split: str = "demo", defect_share: float = DEFECT_SHARE) -> World:
    """A world of ``n_images`` scenes with five captions each.

    Seed, split and number name a scene's stream: worlds of one seed and split agree on the images they share,
    and those of different splits or seeds share nothing. ``defect_share`` (0 to 1) of the captions are
    defective, half of them meaningless and half wrong.

    Raises:
        DatasetError: fewer than one image, or a share outside 0 to 1.
    """
    if n_images < 1:
        raise DatasetError(f"a world of {n_images} images was asked for; it needs at least 1")
    if not 0 <= defect_share <= 1:
        raise DatasetError(f"the share of defective captions is {defect_share}, but it lies between 0 and 1")
    scenes: dict[str, Scene] = {}
    captions: dict[str, Description] = {}
    for number in range(1, n_images + 1):
        scene = compose(Stream("scene", split, seed, number))
        scenes[str(number)] = scene
        stream = Stream("captions", split, seed, number)
        for caption in _captions(stream, str(number), scene, defect_share):
            captions[str(len(captions) + 1)] = caption
    return World(seed, split, defect_share, scenes, captions)


def _captions(stream: Stream, image_id: str, scene: Scene, defect_share: float) -> list[Description]:
    """Five captions of different texts."""
    captions: list[Description] = []
    while len(captions) < CAPTIONS_PER_IMAGE:
        defect = stream.choice(list(Defect)) if stream.chance(defect_share) else None
        meaning = _defective(stream, scene, defect) if defect else describe(stream, scene)
        text = say(stream, meaning)
        if defect is Defect.MEANINGLESS or all(text != caption.text for caption in captions):
            captions.append(Description(image_id, text, meaning, defect))
    return captions


def _defective(stream: Stream, scene: Scene, defect: Defect) -> Meaning:
    if defect is Defect.MEANINGLESS:
        return Meaning()
    while True:
        meaning = describe(stream, compose(stream))
        if not truth(scene, meaning).label.is_positive:
            return meaning
