"""What searches in what: the forms of data sets, of images, sounds, videos and texts, and of composed queries.

A new form is an entry here, a wording in ``hit_templates`` and a reader. Stages and tables call the left items images
and the right ones captions whatever they are; names for people come from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from mitl.records.enums import Direction, PartKind


@dataclass(frozen=True, slots=True)
class SetForm:
    """One form of data sets; pairs have a left and a right item."""

    sides: tuple[str, str]
    """What the left and the right items are called; database and files know them by these names."""
    ways: tuple[str, str]
    """What each direction is called, in the order of ``Direction``."""
    asks: str
    """What a wording of pairs for it says that it asks, in its ``hit_type.toml``."""
    wording: str
    """The wording of pairs where no other one is asked for."""
    nouns: tuple[str, str]
    """The plurals of both sides' names."""
    left_part: PartKind = PartKind.IMAGE
    """What the left items are: pictures, sounds, videos or texts."""
    composed: bool = False
    """Whether a right item is a text together with one of the left items, its reference."""

    @property
    def parts(self) -> tuple[tuple[PartKind, ...], tuple[PartKind, ...]]:
        """What a left and a right item consist of."""
        return (self.left_part,), ((PartKind.IMAGE,) if self.composed else ()) + (PartKind.TEXT,)

    @property
    def searches(self) -> dict[str, tuple[str, str]]:
        """Direction → the side that asks, and the one that is searched."""
        return dict(zip(self.ways, (self.sides, self.sides[::-1]), strict=True))

    @property
    def way_names(self) -> dict[Direction, str]:
        """What each direction is called."""
        return dict(zip(Direction, self.ways, strict=True))

    @property
    def lists(self) -> tuple[str, str]:
        """The files of a release that list the positives of each query, in the order of ``Direction``."""
        left, right = self.sides
        return f"{left}_to_{right}.json", f"{right}_to_{left}.json"


IMAGES = SetForm(("image", "caption"), ("i2t", "t2i"), "pairs", "pairs-plain", ("images", "captions"))
TEXTS = SetForm(
    ("document", "query"),
    ("d2q", "q2d"),
    "text_pairs",
    "pairs-texts",
    ("documents", "queries"),
    PartKind.TEXT,
)
SOUNDS = SetForm(
    ("sound", "caption"),
    ("a2t", "t2a"),
    "sound_pairs",
    "pairs-sounds",
    ("sounds", "captions"),
    PartKind.AUDIO,
)
VIDEOS = SetForm(
    ("video", "caption"),
    ("v2t", "t2v"),
    "video_pairs",
    "pairs-videos",
    ("videos", "captions"),
    PartKind.VIDEO,
)
COMPOSED = SetForm(
    ("image", "query"),
    ("i2q", "q2i"),
    "composed_pairs",
    "pairs-composed",
    ("images", "queries"),
    composed=True,
)
SET_FORMS = {form.sides: form for form in (IMAGES, TEXTS, SOUNDS, VIDEOS, COMPOSED)}
"""By the names of both sides."""
