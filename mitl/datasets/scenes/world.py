"""A world of scenes with five captions each: a data set whose every pair has a known truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from mitl.datasets.scenes.describing import PICTURE_WORDS, Words, clear_relation, compose_query, describe, say
from mitl.datasets.scenes.graph import CANVAS, Background, Color, Group, Scene, Shape, Size, Spot, Stream
from mitl.datasets.scenes.playing import SOUND_WORDS, VIDEO_WORDS, compose_sound, compose_video
from mitl.datasets.scenes.truth import Assertion, Meaning, RelationAssertion, Truth, truth
from mitl.errors import DatasetError
from mitl.records import Caption, IdKind, Image, Label, RetrievalSet, Shortcoming, several
from mitl.records.forms import COMPOSED, IMAGES, SOUNDS, TEXTS, VIDEOS, SetForm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RADII = {Size.SMALL: (19, 22), Size.MEDIUM: (29, 34), Size.LARGE: (46, 54)}
GROUP_WEIGHTS = (0.18, 0.36, 0.30, 0.16)
QUANTITY_WEIGHTS = (0.56, 0.28, 0.16)
USUAL_SHARE = 0.55
"""How often a group has its shape's usual colour, and a scene its main shape's usual background, by habit
rather than by chance: as in real pictures, what is often seen together is described alike."""
USUAL: dict[Shape, tuple[Color, Background]] = {
    Shape.CIRCLE: (Color.BLUE, Background.SKY),
    Shape.SQUARE: (Color.BLACK, Background.BRICKS),
    Shape.TRIANGLE: (Color.ORANGE, Background.SAND),
    Shape.STAR: (Color.YELLOW, Background.NIGHT),
    Shape.HEART: (Color.RED, Background.GRASS),
    Shape.CROSS: (Color.WHITE, Background.SNOW),
    Shape.DIAMOND: (Color.PURPLE, Background.WATER),
    Shape.CRESCENT: (Color.WHITE, Background.NIGHT),
}
MARGIN = 7
GAP = 6
MAX_TURN = 9

Box = tuple[float, float, float, float]
Offsets = list[tuple[float, float]]


def compose(stream: Stream) -> Scene:
    """A scene whose groups all have room; plans that find none are drawn again."""
    while True:
        scene = _attempt(stream)
        if scene is not None:
            return scene


def _attempt(stream: Stream) -> Scene | None:
    count = stream.weighted((1, 2, 3, 4), GROUP_WEIGHTS)
    shapes = stream.sample(list(Shape), count)
    usual_background = USUAL[shapes[0]][1]
    background = usual_background if stream.chance(USUAL_SHARE) else stream.choice(list(Background))
    texture = stream.between(0, 2**31 - 1)
    groups: list[Group] = []
    taken: list[Box] = []
    for shape, size in zip(shapes, _sizes(stream, count), strict=True):
        color = USUAL[shape][0] if stream.chance(USUAL_SHARE) else stream.choice(list(Color))
        radius = stream.between(*RADII[size])
        quantity = stream.weighted((1, 2, 3), QUANTITY_WEIGHTS)
        spots = _place(stream, quantity, radius, taken)
        if spots is None:
            return None
        groups.append(Group(shape, color, size, radius, spots))
    return Scene(background, texture, tuple(groups))


def _sizes(stream: Stream, count: int) -> list[Size]:
    """The main group's size first; every other is smaller, so the largest is never in doubt."""
    if count == 1:
        return [stream.weighted(list(Size), (0.2, 0.35, 0.45))]
    main = stream.weighted((Size.LARGE, Size.MEDIUM), (0.8, 0.2))
    smaller = [size for size in Size if size.order < main.order]
    return [main, *(stream.choice(smaller) for _ in range(count - 1))]


def _place(stream: Stream, quantity: int, radius: int, taken: list[Box]) -> tuple[Spot, ...] | None:
    """Spots for a group beside what is there; its box joins ``taken``. None where no room was found."""
    for _ in range(40):
        offsets = _arrangement(stream, quantity, radius)
        half_w = max(abs(x) for x, _ in offsets) + radius
        half_h = max(abs(y) for _, y in offsets) + radius
        free_w, free_h = CANVAS / 2 - MARGIN - half_w, CANVAS / 2 - MARGIN - half_h
        if free_w < 0 or free_h < 0:
            continue
        x = CANVAS // 2 + stream.between(-int(free_w), int(free_w))
        y = CANVAS // 2 + stream.between(-int(free_h), int(free_h))
        box = (x - half_w, y - half_h, x + half_w, y + half_h)
        if any(_touch(box, other) for other in taken):
            continue
        taken.append(box)
        turns = [stream.between(-MAX_TURN, MAX_TURN) for _ in offsets]
        return tuple(
            Spot(round(x + dx), round(y + dy), turn) for (dx, dy), turn in zip(offsets, turns, strict=True)
        )
    return None


def _arrangement(stream: Stream, quantity: int, radius: int) -> Offsets:
    """Offsets from the group's middle: a row, a column or, of three, a triangle."""
    step = 2 * radius + GAP
    along = [(i - (quantity - 1) / 2) * step for i in range(quantity)]
    row, column = [(a, 0.0) for a in along], [(0.0, a) for a in along]
    if quantity != 3:
        return stream.choice((row, column))
    rise = step * math.sqrt(3) / 4
    up = [(-step / 2, rise), (step / 2, rise), (0.0, -rise)]
    return stream.choice((row, column, up, [(x, -y) for x, y in up]))


def _touch(a: Box, b: Box) -> bool:
    return a[0] < b[2] + GAP and b[0] < a[2] + GAP and a[1] < b[3] + GAP and b[1] < a[3] + GAP


T = TypeVar("T")

CAPTIONS_PER_IMAGE = 5
MOST_IMAGES = 100_000
"""Of a world, which is made in memory; COCO has a few more."""
DEFECT_SHARE = 0.015
MEDIA_FOLDER = "dataset"
"""Where a project keeps the files of a world, in a folder for their kind; they are named relative to the project."""


@dataclass(frozen=True, slots=True)
class WorldKind:
    """What the items of a world are, all told by the same graph."""

    form: SetForm
    stream: str
    """Name of the streams that scenes come from: worlds of one name show the same scenes."""
    compose: Callable[[Stream], Scene]
    words: Words
    suffix: str | None = ".png"
    """Of the items' files; None where they are texts."""


WORLD_KINDS = {
    "images": WorldKind(IMAGES, "scene", compose, PICTURE_WORDS),
    "texts": WorldKind(TEXTS, "scene", compose, PICTURE_WORDS, None),
    "sounds": WorldKind(SOUNDS, "sound", compose_sound, SOUND_WORDS, ".wav"),
    "videos": WorldKind(
        VIDEOS, "video", lambda stream: compose_video(stream, compose(stream)), VIDEO_WORDS, ".webm"
    ),
    "composed": WorldKind(COMPOSED, "scene", compose, PICTURE_WORDS),
}
"""By the name that ``--kind`` takes."""


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
    reference: str | None = None
    """Of a composed query, the image that its text changes."""


@dataclass(frozen=True)
class World:
    """Scenes and captions by external id (images from "1", captions from "1"), and how they were made."""

    seed: int
    split: str
    defect_share: float
    scenes: Mapping[str, Scene]
    captions: Mapping[str, Description]
    kind: str = "images"
    """A name of ``WORLD_KINDS``."""

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
        captions = (
            Caption(id_, caption.image_id, caption.text, caption.reference)
            for id_, caption in self.captions.items()
        )
        sides = WORLD_KINDS[self.kind].form.sides
        return RetrievalSet(
            "scenes", "scenes", IdKind.INTEGER, tuple(map(self._item, self.scenes)), tuple(captions), sides
        )

    def file_name(self, image_id: str) -> str | None:
        """The file of an item, relative to the world's folder; None of texts."""
        suffix = WORLD_KINDS[self.kind].suffix
        folder = "images" if suffix == ".png" else self.kind
        return None if suffix is None else f"{folder}/{image_id}{suffix}"

    def _item(self, image_id: str) -> Image:
        name = self.file_name(image_id)
        if name is None:
            stream = Stream("document", self.split, self.seed, image_id)
            return Image(image_id, texts=(told_in_full(stream, self.scenes[image_id]),))
        across = CANVAS if name.endswith(".png") else None
        return Image(image_id, file=f"{MEDIA_FOLDER}/{name}", width=across, height=across)

    def truth(self, image_id: str, caption_id: str) -> Truth:
        """The truth of one pair with its rationale; DatasetError for an id that this world lacks.

        A composed query looks for another image than its reference.
        """
        (scene,) = self.look_up([image_id], self.scenes)
        (meaning,) = self.look_up([caption_id], self.meanings)
        if self.captions[caption_id].reference == image_id:
            return Truth(Label.NO, (Shortcoming.NOT_IN_IMAGE,))
        return truth(scene, meaning)

    def look_up(self, ids: Sequence[str], known: Mapping[str, T]) -> list[T]:
        """Of each id its scene, or its meaning; DatasetError for an id that this world lacks."""
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
    from mitl.datasets.scenes.truth import label_codes

    codes = label_codes(world.look_up(image_ids, world.scenes), world.look_up(caption_ids, world.meanings))
    row_of = {image_id: row for row, image_id in enumerate(image_ids)}
    for column, caption_id in enumerate(caption_ids):
        reference = world.captions[caption_id].reference
        if reference in row_of:
            codes[row_of[reference], column] = Label.NO.code
    return codes


_FEWEST_COMPOSED = 2
FURTHER = 48
"""Sentences that onlookers may write of a scene beside its captions."""


def further_descriptions(world: World, image_id: str) -> dict[str, Meaning]:
    """Sentence → meaning: what onlookers may write of a scene that no caption of it says; the same every time.

    Raises:
        DatasetError: an image that the world lacks.
    """
    (scene,) = world.look_up([image_id], world.scenes)
    words = WORLD_KINDS[world.kind].words
    said = {caption.text for caption in world.captions.values() if caption.image_id == image_id}
    stream = Stream("further captions", world.split, world.seed, image_id)
    meanings: dict[str, Meaning] = {}
    for _ in range(FURTHER):
        meaning = describe(stream, scene)
        text = say(stream, meaning, words)
        if text not in said:
            meanings[text] = meaning
    return meanings


def told_in_full(stream: Stream, scene: Scene) -> str:
    """A document that tells of every group of a scene, and how the others lie around the main one."""
    told = [
        Meaning((Assertion(g.shape, g.color, g.size, g.quantity),)) for g in stream.shuffled(scene.groups)
    ]
    told[0] = replace(told[0], background=scene.background)
    sentences = [say(stream, meaning).rstrip(".") for meaning in told]
    main = scene.main
    for other in scene.groups:
        relation = None if other is main else clear_relation(main, other)
        if relation is not None:
            shapes = tuple(Assertion(group.shape, quantity=group.quantity) for group in (main, other))
            link = RelationAssertion(main.shape, relation, other.shape)
            sentences.append(say(stream, Meaning(shapes, (link,))).rstrip("."))
    return ". ".join(sentences) + "."


def generate(
    n_images: int,
    *,
    seed: int,
    split: str = "demo",
    defect_share: float = DEFECT_SHARE,
    kind: str = "images",
) -> World:
    """A world of ``n_images`` scenes with five captions each, or five queries; ``kind`` is one of ``WORLD_KINDS``.

    Seed, split and number name a scene's stream: worlds of one seed and split agree on the images they share,
    and those of different splits or seeds share nothing. ``defect_share`` (0 to 1) of the captions are
    defective, half of them meaningless and half wrong.

    Raises:
        DatasetError: no image or more than ``MOST_IMAGES``, or a share outside 0 to 1.
    """
    if not 1 <= n_images <= MOST_IMAGES:
        raise DatasetError(
            f"a world of {n_images:,} images was asked for; it can have from 1 to {MOST_IMAGES:,}"
        )
    if not 0 <= defect_share <= 1:
        raise DatasetError(f"the share of defective captions is {defect_share}, but it lies between 0 and 1")
    of_kind = WORLD_KINDS[kind]
    scenes = {
        str(number): of_kind.compose(Stream(of_kind.stream, split, seed, number))
        for number in range(1, n_images + 1)
    }
    if of_kind.form.composed:
        if n_images < _FEWEST_COMPOSED:
            raise DatasetError(
                f"a world of {several(n_images, 'image')} was asked for, but composed queries need at least "
                f"{_FEWEST_COMPOSED}"
            )
        image_ids = list(scenes)
        told = [
            _queries(Stream("queries", split, seed, image_id), place, image_ids, scenes, defect_share)
            for place, image_id in enumerate(image_ids)
        ]
    else:
        name = "captions" if kind == "images" else f"captions of {kind}"
        told = [
            _captions(Stream(name, split, seed, image_id), image_id, scene, defect_share, of_kind)
            for image_id, scene in scenes.items()
        ]
    captions = dict(zip(map(str, count(1)), (caption for some in told for caption in some)))  # noqa: B905
    return World(seed, split, defect_share, scenes, captions, kind)


def _queries(
    stream: Stream, place: int, image_ids: Sequence[str], scenes: Mapping[str, Scene], defect_share: float
) -> list[Description]:
    """Five queries that look for an image, a few of them meaningless."""
    queries = []
    for _ in range(CAPTIONS_PER_IMAGE):
        reference, text, meaning = compose_query(stream, place, image_ids, scenes)
        defect = Defect.MEANINGLESS if stream.chance(defect_share) else None
        if defect:
            text, meaning = say(stream, Meaning()), Meaning()
        queries.append(Description(image_ids[place], text, meaning, defect, reference))
    return queries


def _captions(
    stream: Stream, image_id: str, scene: Scene, defect_share: float, kind: WorldKind
) -> list[Description]:
    """Five captions of different texts."""
    captions: list[Description] = []
    while len(captions) < CAPTIONS_PER_IMAGE:
        defect = stream.choice(list(Defect)) if stream.chance(defect_share) else None
        meaning = _defective(stream, scene, defect, kind) if defect else describe(stream, scene)
        text = say(stream, meaning, kind.words)
        if defect is Defect.MEANINGLESS or all(text != caption.text for caption in captions):
            captions.append(Description(image_id, text, meaning, defect))
    return captions


def _defective(stream: Stream, scene: Scene, defect: Defect, kind: WorldKind) -> Meaning:
    if defect is Defect.MEANINGLESS:
        return Meaning()
    while True:
        meaning = describe(stream, kind.compose(stream))
        if not truth(scene, meaning).label.is_positive:
            return meaning
