"""What is held to be true of a pair: by a generated world, the official sets, the data set itself, a release."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mitl.datasets.official import PACKAGE
from mitl.datasets.scenes.files import read_world
from mitl.datasets.scenes.similarity import graded_similarity
from mitl.datasets.scenes.truth import Truth, truth
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.errors import UsageError
from mitl.positives.folders import dataset_of, require_one_dataset
from mitl.positives.loading import ReleasePositives, official_positives, read_release
from mitl.records import Direction, Label, Pair, Shortcoming
from mitl.records.similarity import HIGHEST, LOWEST, Likeness
from mitl.settings import WORLD_FOLDER, Settings

TruthOf = Callable[[str, str], Truth]
"""(image's external id, caption's external id) → what is true of the pair."""

GradedTruthOf = Callable[[Likeness, Sequence[str], Sequence[str]], Sequence[float]]
"""What is rated, external ids of first and of second items (of SITS images and captions) → scores from 0 to 5."""


@dataclass(frozen=True, slots=True)
class TextsOf:
    """What may be written of an image, and how well a text describes it."""

    sentences: Callable[[str], Sequence[str]]
    """Image's external id → what an onlooker may write."""
    truth: Callable[[str, str], Truth]
    """(image's external id, text) → what is true of the two; no match where nobody would write it of the image."""


GRADES: Mapping[Label, float] = {
    Label.YES: 4.8,
    Label.WEAK_YES: 4.0,
    Label.WEAK_NO: 2.3,
    Label.NO: 0.2,
}
"""How like an image and a caption are whose label alone is known: about the medians of graded truth on scenes."""
_YES = Truth(Label.YES)
_NO = Truth(Label.NO, (Shortcoming.NOT_IN_IMAGE,))


def truth_source(settings: Settings, name: str) -> TruthOf:
    """The truth called ``scenes``, ``official``, ``original`` or ``release:DIR``.

    ``official`` takes a pair for a match where COCO, CxC or ECCV Caption lists it, and for none elsewhere;
    ``original`` does the same with the project's captions and their own images, ``release:DIR`` with a release's
    positives.

    Raises:
        UsageError: no such truth, or the official sets list nothing of this project.
        ReleaseError: the release cannot be read, or is of another data set than the project.
    """
    require_known(name)
    if name == "scenes":
        return read_world(settings.project / WORLD_FOLDER).truth
    if name == "official":
        pairs = {
            pair
            for which in ("original", "cxc", "eccv")
            for direction in Direction
            for pair in official_positives(which).pairs(direction)
        }
        if pairs.isdisjoint(_originals(settings)):
            raise UsageError(
                "COCO's official sets list no caption of this project, so all of it would be called no match; "
                "give --truth original or release:DIR"
            )
    elif name == "original":
        pairs = _originals(settings)
    else:
        release = released_truth(settings, name)
        pairs = {pair for direction in Direction for pair in release.pairs(direction)}
    return lambda image, caption: _YES if (image, caption) in pairs else _NO


def released_truth(settings: Settings, name: str) -> ReleasePositives:
    """The positives of ``release:DIR``; ReleaseError where it is none, or of another data set than the project."""
    folder = Path(name.removeprefix("release:"))
    with open_database(settings.db_url, read_only=True) as session:
        own = "this project", item_store.dataset(session).content_sha256
    require_one_dataset(own, (name, dataset_of(folder)))
    return read_release(folder)


def graded_truth_source(settings: Settings, name: str) -> GradedTruthOf:
    """The graded truth called as in :func:`truth_source`.

    On ``scenes`` it is that of the scene graphs. Elsewhere ``GRADES`` stand for the labels, and two items of one side
    are as like as one of them and what belongs to the other: a caption's image, an image's captions.

    Raises:
        UsageError: no such truth.
    """
    require_known(name)
    if name == "scenes":
        world = read_world(settings.project / WORLD_FOLDER)
        return lambda task, first, second: graded_similarity(world, task, first, second).tolist()
    truth_of = truth_source(settings, name)
    image_of: dict[str, str] = {}
    captions_of: dict[str, list[str]] = defaultdict(list)
    for image, caption in sorted(_originals(settings)):
        image_of[caption] = image
        captions_of[image].append(caption)

    def grade(task: Likeness, first: str, second: str) -> float:
        if task is Likeness.SITS:
            return GRADES[truth_of(first, second).label]
        if first == second:
            return HIGHEST
        if task is Likeness.STS:
            across = [(image_of[first], second), (image_of[second], first)]
        else:
            across = [
                (a, caption) for a, b in ((first, second), (second, first)) for caption in captions_of[b]
            ]
        return max((GRADES[truth_of(*pair).label] for pair in across), default=LOWEST)

    return lambda task, first, second: [grade(task, *pair) for pair in zip(first, second, strict=True)]


def text_source(settings: Settings, name: str) -> TextsOf:
    """What may be written of the images of a generated world.

    Raises:
        UsageError: another truth is named: nobody knows how other images could be described.
    """
    require_known(name)
    if name != "scenes":
        raise UsageError(
            f"scripted workers write texts by the truth of generated scenes alone, not by {name!r}; let people work "
            "with `mitl serve`"
        )
    from mitl.datasets.scenes.world import further_descriptions

    world = read_world(settings.project / WORLD_FOLDER)
    by_text = {caption.text: caption.meaning for caption in world.captions.values()}

    def of_text(image: str, text: str) -> Truth:
        meaning = further_descriptions(world, image).get(text) or by_text.get(text)
        return _NO if meaning is None else truth(world.scenes[image], meaning)

    return TextsOf(lambda image: tuple(further_descriptions(world, image)), of_text)


def default_truth(settings: Settings) -> str:
    """``scenes`` in a generated world, ``official`` on COCO's test split, ``original`` on any other data set."""
    if has_known_truth(settings):
        return "scenes"
    with open_database(settings.db_url, read_only=True) as session:
        may_be = item_store.dataset(session).kind == "coco" and find_spec(PACKAGE) is not None
    # What has COCO's layout may be somebody's own.
    listed = official_positives("original").pairs(Direction.I2T) if may_be else set[tuple[str, str]]()
    return "original" if listed.isdisjoint(_originals(settings)) else "official"


def require_known(name: str) -> None:
    """UsageError unless this names a truth."""
    is_release = name.startswith("release:") and name != "release:"
    if name not in ("scenes", "official", "original") and not is_release:
        raise UsageError(f"no truth called {name!r}; known: scenes, official, original, release:DIR")


def has_known_truth(settings: Settings) -> bool:
    """Whether this project's world was generated, so that the truth of every pair is known."""
    return (settings.project / WORLD_FOLDER / "scenes.json").exists()


def _originals(settings: Settings) -> set[tuple[str, str]]:
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        images, captions = item_store.names(session, dataset.id)
        originals = item_store.originals(session, dataset.id)
    return {(images[pair.image_id], captions[pair.caption_id]) for pair in originals}


def true_pairs(
    settings: Settings,
    image_queries: Sequence[int],
    caption_queries: Sequence[int],
    images: Mapping[int, str],
    captions: Mapping[int, str],
) -> set[Pair]:
    """The query × gallery pairs of a generated world, both directions, whose truth is yes or weak_yes.

    Args:
        images, captions: surrogate → external id of the whole data set.
    """
    from mitl.datasets.scenes.world import truth_matrix

    world = read_world(settings.project / WORLD_FOLDER)
    matches: set[Pair] = set()
    for rows, columns in (
        (list(image_queries), list(captions)),
        (list(images), list(caption_queries)),
    ):
        if not rows or not columns:
            continue
        codes = truth_matrix(world, [images[i] for i in rows], [captions[c] for c in columns])
        for row, column in zip(*(codes <= Label.WEAK_YES.code).nonzero(), strict=True):
            matches.add(Pair(rows[row], columns[column]))
    return matches
