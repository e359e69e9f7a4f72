"""Which columns of a table are the image, the captions and their ids: by natural names, or as the user says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from mitl.errors import DatasetError, UsageError
from mitl.records.forms import COMPOSED, IMAGES, SOUNDS, VIDEOS, SetForm
from mitl.records.results import listed


class Holds(Enum):
    """What the cells of a column hold."""

    ONE = "one value"
    LIST = "a list of values"
    PICTURE = "a picture"
    """Or a sound or a video: bytes, or a structure of bytes and path."""
    OTHER = "something else"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; one inside a structure is called ``outer.inner``."""

    name: str
    holds: Holds
    kind: str
    """The type in the file's own words, for messages."""


ROLES = ("image", "sound", "video", "reference", "image_id", "url", "caption", "caption_id", "split")
"""What ``--columns ROLE=COLUMN`` may say."""
NAMES = {
    "image": (
        "image img photo picture file file_name filename filepath file_path image_file image_name image_path "
        "image_filename img_path img_name path"
    ),
    "sound": (
        "audio sound wav flac mp3 ogg recording audio_file audio_path audio_name audio_filename sound_file sound_path "
        "sound_name wav_file wav_path"
    ),
    "video": (
        "video clip mp4 webm movie video_file video_path video_name video_filename clip_file clip_path clip_name"
    ),
    "reference": (
        "reference reference_image reference_image_id reference_id reference_img reference_img_id ref ref_image ref_id "
        "candidate source_image query_image"
    ),
    "target": (
        "target target_image target_image_id target_id target_img target_img_id target_hard edited_image output_image"
    ),
    "change": "relative_caption modification modification_text instruction edit change query query_text",
    "image_id": "image_id imageid img_id imgid",
    "sound_id": "sound_id soundid audio_id audioid",
    "video_id": "video_id videoid clip_id clipid",
    "url": "url image_url img_url coco_url audio_url sound_url video_url clip_url",
    "caption": "caption captions text texts txt title sentence sentences description comment raw alt_text",
    "caption_id": "caption_id caption_ids captionid sentid sentids sen_id sentence_id query_id pairid pair_id",
    "split": "split",
    "id": "id key",
}
"""Role → the natural names of its column, without regard to case and to what stands between the words."""
_ROLE_OF = {re.sub(r"[^a-z]", "", name): role for role, names in NAMES.items() for name in names.split()}
_LEFT = {"image": None, "sound": SOUNDS, "video": VIDEOS}
"""Roles of the column that holds or names the left items → their form; of images the files' names tell it."""
_SAYS_IMAGE = re.compile("im(a)?g|photo|picture")
_LEFT_IDS = {"image_id": None, "sound_id": SOUNDS, "video_id": VIDEOS}
_FEATURES = {"Audio": SOUNDS, "Video": VIDEOS}
"""Kinds of columns, as files of the ``datasets`` library call them."""
_NUMBERED = re.compile(r"(.*?)[\s_.-]*(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns of a table by what they are; None where the table has none."""

    captions: tuple[str, ...]
    """Several where captions are numbered, as ``caption_0`` to ``caption_4``."""
    listed: bool
    """Whether the one column of captions holds lists."""
    picture: str | None = None
    file: str | None = None
    """Names of files, or addresses."""
    image_id: str | None = None
    url: str | None = None
    caption_id: str | None = None
    split: str | None = None
    id: str | None = None
    """An id of which only the rows tell whose it is."""
    form: SetForm | None = None
    """What the columns say that the left items are; None where only the files' names tell."""
    reference: str | None = None
    """Of composed queries, the images that their texts change."""
    sound_said: bool = False
    """Whether the user said which column holds sounds: those named ``.mp4`` or ``.webm`` are meant too."""

    @property
    def read(self) -> list[str]:
        """Every column that is needed but the pictures, which are large."""
        single = (self.file, self.reference, self.image_id, self.url, self.caption_id, self.split, self.id)
        return list(dict.fromkeys([*self.captions, *filter(None, single)]))


def parse_columns(given: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Role → columns of texts such as ``caption=text``; a caption may have several.

    Raises:
        UsageError: a text is not of this form, names an unknown role, or gives a role other than the caption twice.
    """
    said: dict[str, tuple[str, ...]] = {}
    for text in given:
        role, equals, column = text.partition("=")
        if not equals or not column or role not in ROLES:
            raise UsageError(
                f"--columns takes ROLE=COLUMN, as caption=text, not {text!r}; roles: {', '.join(ROLES)}"
            )
        if role in said and role != "caption":
            raise UsageError(
                f"--columns gives {role} twice, as {said[role][0]!r} and {column!r}; leave one out"
            )
        said[role] = (*said.get(role, ()), column)
    return said


def assign(columns: Sequence[TableColumn], said: Mapping[str, tuple[str, ...]], source: str) -> Roles:
    """The role of each column that has one: as said, else by its name; nested ones only for captions.

    Raises:
        DatasetError: a column that was said is not there; a role has several columns, or none that it needs;
            cells hold what the role cannot use. The message names ``source`` and what to say.
    """
    by_name = {column.name: column for column in columns}
    for role, names in said.items():
        for name in names:
            if name not in by_name:
                raise DatasetError(
                    f"{source} has no column {name!r}, which --columns {role}=… names; "
                    f"its columns: {_quoted(by_name)}"
                )
    taken = {name for names in said.values() for name in names}
    free = [column for column in columns if column.name not in taken]
    by_role = {role: _named(role, free) for role in NAMES}

    def column_of(role: str) -> str | None:
        if role in said:
            return said[role][0]
        if len(by_role[role]) > 1:
            raise _ambiguous(role, by_role[role], source)
        return by_role[role][0] if by_role[role] else None

    composes = "reference" in said or by_role["target"] or by_role["change"]
    reference = column_of("reference") if composes else None
    picture, file, form = _left(by_name, free, by_role, said, source, composed=reference is not None)
    url, caption_id, split = column_of("url"), column_of("caption_id"), column_of("split")
    image_id, named_form = _left_id(by_role, said, source)
    if reference:
        form, file, image_id = COMPOSED, file or image_id, None
    form = form or named_form
    weak = by_role["id"][0] if len(by_role["id"]) == 1 else None
    if not (picture or file or image_id or url or weak):
        if by_role["reference"]:
            raise DatasetError(
                f"{source} has the column {by_role['reference'][0]!r} but none for the image that its queries look "
                f"for, such as 'target'; its columns: {_quoted(by_name)}; say which it is with --columns image=COLUMN"
            )
        raise DatasetError(
            f"{source} has no column for the image, such as 'image', 'filename' or 'image_id', nor for a sound or "
            f"video; its columns: {_quoted(by_name)}; say which it is with --columns image=COLUMN (questions and "
            "passages, or other texts with texts, are read from a folder in BEIR's layout, see docs/own-data.md)"
        )
    captions = said.get("caption") or _captions(columns, free, source, composed=reference is not None)
    if not caption_id:
        inner = [c.name for c in free if "." in c.name and _role(c.name.rpartition(".")[2]) == "caption_id"]
        outer = captions[0].rpartition(".")[0]
        caption_id = f"{outer}.{inner[0].rpartition('.')[2]}" if len(inner) == 1 and outer else None
        caption_id = caption_id if caption_id in by_name else None
    listed = len(captions) == 1 and by_name[captions[0]].holds is Holds.LIST
    for name in filter(None, (*(captions if not listed else ()), file, reference, image_id, url, split)):
        _require(by_name[name], (Holds.ONE,), source)
    if listed and caption_id:
        _require(by_name[caption_id], (Holds.LIST, Holds.ONE), source)
    return Roles(
        captions,
        listed,
        picture,
        file,
        image_id,
        url,
        caption_id,
        split,
        weak,
        form=form,
        reference=reference,
        sound_said="sound" in said,
    )


def _left(
    by_name: Mapping[str, TableColumn],
    free: Sequence[TableColumn],
    by_role: Mapping[str, Sequence[str]],
    said: Mapping[str, tuple[str, ...]],
    source: str,
    *,
    composed: bool,
) -> tuple[str | None, str | None, SetForm | None]:
    """(the column of pictures, the column of their names, their form): a table with pictures may have both.

    Sounds and videos count as pictures here.
    """
    chosen = [role for role in _LEFT if role in said]
    if len(chosen) > 1:
        raise UsageError(
            f"--columns gives {' and '.join(chosen)}, and a data set has one of them; leave one out"
        )
    if chosen:
        name = said[chosen[0]][0]
        form = _LEFT[chosen[0]] or IMAGES
        return (name, None, form) if by_name[name].holds is Holds.PICTURE else (None, name, form)
    if composed and by_role["target"]:
        if len(targets := [*by_role["target"], *by_role["image"]]) > 1:
            raise _ambiguous("image", targets, source)
        return None, by_role["target"][0], COMPOSED
    pictures = [column for column in free if column.holds is Holds.PICTURE]
    if len(pictures) > 1:
        names = [column.name for column in pictures]
        raise DatasetError(
            f"{source} holds pictures, sounds or videos in several columns ({', '.join(names)}), and one is needed; "
            f"say which with --columns {_role(names[0]) if _role(names[0]) in _LEFT else 'image'}={names[0]}"
        )
    picture_names = {column.name for column in pictures}
    roles = {name: role for role in _LEFT for name in by_role[role] if name not in picture_names}
    if len(roles) > 1 and not pictures:
        raise _ambiguous(next(iter(roles.values())), list(roles), source)
    file, role = next(iter(roles.items())) if len(roles) == 1 else (None, "image")
    if pictures:
        (picture,) = pictures
        role = next((left_role for left_role in _LEFT if picture.name in by_role[left_role]), role)
        return picture.name, file, _FEATURES.get(picture.kind) or _LEFT[role] or IMAGES
    return None, file, _LEFT[role] or (IMAGES if file and _SAYS_IMAGE.search(file.lower()) else None)


def _left_id(
    by_role: Mapping[str, Sequence[str]], said: Mapping[str, tuple[str, ...]], source: str
) -> tuple[str | None, SetForm | None]:
    """(the column of the left items' ids, what its name says that they are)."""
    if "image_id" in said:
        return said["image_id"][0], None
    names = {name: role for role in _LEFT_IDS for name in by_role[role]}
    if len(names) > 1:
        raise _ambiguous("image_id", list(names), source)
    return next(((name, _LEFT_IDS[role]) for name, role in names.items()), (None, None))


def _captions(
    columns: Sequence[TableColumn], free: Sequence[TableColumn], source: str, *, composed: bool
) -> tuple[str, ...]:
    plain = _named("caption", free)
    if composed:
        plain = _named("change", free) or plain
    groups: dict[str, list[tuple[int, str]]] = {}
    for column in free:
        match = _NUMBERED.fullmatch(column.name)
        if match and _role(match[1]) == "caption":
            groups.setdefault(match[1], []).append((int(match[2]), column.name))
    candidates: list[tuple[str, ...]] = [(name,) for name in plain]
    candidates += [tuple(name for _, name in sorted(group)) for group in groups.values()]
    if not candidates:
        inner = (c.name for c in free if "." in c.name)
        candidates = [(name,) for name in inner if _role(name.rpartition(".")[2]) == "caption"]
    if not candidates:
        raise DatasetError(
            f"{source} has no column for the caption, such as 'caption' or 'text'; its columns: "
            f"{_quoted(column.name for column in columns)}; say which it is with --columns caption=COLUMN"
        )
    if len(candidates) > 1:
        raise _ambiguous("caption", [names[0] for names in candidates], source)
    return candidates[0]


def _named(role: str, columns: Sequence[TableColumn]) -> list[str]:
    return [column.name for column in columns if "." not in column.name and _role(column.name) == role]


def _role(name: str) -> str | None:
    return _ROLE_OF.get(re.sub(r"[\W_]", "", name.lower()))


def _ambiguous(role: str, names: Sequence[str], source: str) -> DatasetError:
    what = {"image_id": "image's id", "caption_id": "caption's id"}.get(role, role)
    return DatasetError(
        f"{source} has {len(names)} columns that could be the {what}: {_quoted(names)}; "
        f"say which it is with --columns {role}={names[0]}"
    )


def _require(column: TableColumn, wanted: Sequence[Holds], source: str) -> None:
    if column.holds not in wanted:
        raise DatasetError(
            f"column {column.name!r} of {source} holds {column.kind}, but a table of pairs needs one value a cell "
            "there; give it a row for each value, or leave the column out"
        )


def _quoted(names: Iterable[str]) -> str:
    return listed([repr(name) for name in names], 12) or "none"
