"""Pairs to look at in a notebook: pictures or texts beside texts. Texts are anybody's, so all of it is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import pandas as pd

from mitl.analysis.report.views import LADDER, data_uri
from mitl.errors import UsageError
from mitl.records import PartKind
from mitl.records.forms import IMAGES, SET_FORMS
from mitl.settings import load
from mitl.stages.evaluating.project import CaptionTexts, read_project

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True, eq=False)
class ShownPairs:
    """Pairs with their captions' texts and their images' files; in a notebook a table with the pictures."""

    pairs: pd.DataFrame
    """Its columns image_id and caption_id hold the left and the right items, whatever they are."""
    texts: Mapping[str, str]
    pictures: Mapping[str, Path]
    of: int
    """Pairs that there were; the others are left out."""
    documents: Mapping[str, str] = field(default_factory=dict)
    """The texts of left items that are texts."""
    sides: tuple[str, str] = IMAGES.sides
    """What the left and the right items are called."""

    def __repr__(self) -> str:
        """A line a pair."""
        return "\n".join(map(" | ".join, self._rows()))

    def _repr_html_(self) -> str:
        """A table with the pictures inside it."""
        width, quality = LADDER[-1]
        uris = {
            image: data_uri(self.pictures[image], width=width, quality=quality)
            for image in dict.fromkeys(image for image, *_ in self._rows())
            if image in self.pictures
        }
        rows = []
        for image, caption, text, note in self._rows():
            uri = uris.get(image)
            left, right = self.sides
            picture = f'<img src="{uri}" alt="{left} {escape(image)}">' if uri else f"{left} {escape(image)}"
            if image in self.documents:
                told = _CONTROLS.sub(" ", self.documents[image])
                picture = f"<bdi>{escape(told)}</bdi><br><small>{left} {escape(image)}</small>"
            rows.append(
                f'<tr><td>{picture}</td><td style="text-align: left"><bdi>{escape(text)}</bdi><br>'
                f"<small>{right} {escape(caption)}{escape(f'; {note}' if note else '')}</small></td></tr>"
            )
        left = f"<p>{len(self.pairs):,} of {self.of:,} pairs</p>" if self.of > len(self.pairs) else ""
        return f"<table><tbody>{''.join(rows)}</tbody></table>{left}"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """Image, caption, its text, and what is said of the pair."""
        for row in self.pairs.to_dict("records"):
            image, caption = str(row["image_id"]), str(row["caption_id"])
            notes = [f"rank {row['rank']} of {row['query_id']}"] if "rank" in row else []
            if "match" in row:
                match = row["match"]
                notes.append("not judged" if pd.isna(match) else "match" if match else "no match")
            if isinstance(row.get("label"), str):
                notes.append(row["label"])
            text = self.texts.get(caption, "(not in the project)")
            yield tuple(_CONTROLS.sub(" ", part) for part in (image, caption, text, ", ".join(notes)))


def show(pairs: pd.DataFrame, project: str | Path = ".", *, most: int = 20) -> ShownPairs:
    """The first pairs of a release's table, or of its rankings, with captions and pictures of the project.

    Args:
        pairs: a frame with ``image_id`` and ``caption_id``, or what the project's items are called, or as
            ``Release.rankings`` gives it.
        project: the folder of the project.
        most: pairs that are shown.

    Raises:
        UsageError: there is no frame, or it has neither; a negative number of pairs.
        StoreError: there is no project in the folder.
    """
    if not isinstance(pairs, pd.DataFrame):
        raise UsageError(f"pairs are {type(pairs).__name__}; give a frame, such as release.positives")
    if most < 0:
        raise UsageError(f"most is {most}; it should be the number of pairs to show")
    known = read_project(load(Path(project)))
    form = SET_FORMS[known.items.sides]
    names = tuple(f"{side}_id" for side in form.sides)
    head = pairs.head(most)
    if {"direction", "query_id", "item_id"} <= set(head.columns):
        by_image = head["direction"] == form.ways[0]
        head = head.assign(
            image_id=head["query_id"].where(by_image, head["item_id"]),
            caption_id=head["item_id"].where(by_image, head["query_id"]),
        )
    else:
        head = head.rename(columns=dict(zip(names, ("image_id", "caption_id"), strict=True)))
    if not {"image_id", "caption_id"} <= set(head.columns):
        raise UsageError(
            f"the frame has the columns {', '.join(map(str, pairs.columns))}; pairs have {' and '.join(names)}"
        )
    files = {
        image.external_id: image.path
        for image in known.items.images
        if image.path is not None and image.kind is PartKind.IMAGE
    }
    documents = {image.external_id: "\n".join(image.texts) for image in known.items.images if image.texts}
    texts = CaptionTexts.of_project(known).text_of
    return ShownPairs(head, texts, files, len(pairs), documents, form.sides)
