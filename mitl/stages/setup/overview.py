"""What a data set holds once it is read: a table of counts, and three of its items."""

from __future__ import annotations

from collections import Counter

from mitl.datasets.checking import Checked
from mitl.records import RetrievalSet, Table
from mitl.records.enums import PartKind

EXAMPLES = 3
_WIDTH = 48


def overview(data: RetrievalSet, checked: Checked | None = None) -> tuple[Table, Table]:
    """(counts, examples from the start, the middle and the end); with what a check of the files found."""
    if data.form.left_part is PartKind.TEXT:
        return _of_texts(data)
    form = data.form
    (left, right), (lefts, rights) = form.sides, form.nouns
    of_image = Counter(caption.image_external_id for caption in data.captions)
    same = Counter((caption.image_external_id, caption.text) for caption in data.captions)
    least, most = min(of_image.values()), max(of_image.values())
    rows: list[tuple[str, object]] = [
        (lefts, len(data.images)),
        ("with a file", sum(image.file is not None for image in data.images)),
        ("with an address alone", sum(image.file is None and image.url is not None for image in data.images)),
        (rights, len(data.captions)),
        (f"{rights} of {article(left)} {left}", least if least == most else f"{least}–{most}"),
        (f"{lefts} without a {right}", len(data.images) - len(of_image)),
        (f"{rights} that repeat one of their {left}", len(data.captions) - len(same)),
        (f"characters of the longest {right}", max(len(caption.text) for caption in data.captions)),
    ]
    if form.composed:
        references = {query.reference for query in data.captions}
        rows += [("images that are references", len(references)), ("further positives", len(data.positives))]
    if checked is not None:
        media = "pictures" if form.left_part is PartKind.IMAGE else lefts
        rows += [
            (f"{media} missing", checked.missing),
            (f"{media} unreadable", checked.unreadable),
            (f"{media} that another {left} has too", checked.repeated),
            *([("pictures animated", checked.animated)] if form.left_part is PartKind.IMAGE else []),
            *([("sounds that are silent", checked.silent)] if form.left_part is PartKind.AUDIO else []),
            ("addresses that nobody opened", checked.unseen),
        ]
    captions = data.captions
    files = {image.external_id: image.file or image.url or "–" for image in data.images}
    examples = tuple(
        (
            _short(captions[place].image_external_id),
            _tail(files[captions[place].image_external_id]),
            _short(captions[place].external_id),
            _short(captions[place].text),
        )
        for place in _places(len(captions))
    )
    return (
        Table("what was read", ("", "count"), tuple(rows)),
        Table(
            "examples",
            (left, "picture" if form.left_part is PartKind.IMAGE else "file", right, "text"),
            examples,
        ),
    )


def _of_texts(data: RetrievalSet) -> tuple[Table, Table]:
    """The same of documents and queries."""
    text_of = {document.external_id: " ".join(document.texts) for document in data.images}
    originals = [
        *((query.image_external_id, query.external_id) for query in data.captions),
        *data.positives,
    ]
    of_query = Counter(query for _, query in originals)
    least, most = min(of_query.values()), max(of_query.values())
    rows = (
        ("documents", len(data.images)),
        ("documents with a title", sum(len(document.texts) > 1 for document in data.images)),
        ("queries", len(data.captions)),
        ("original positives", len(originals)),
        ("positives of a query", least if least == most else f"{least}–{most}"),
        ("documents without a query", len(data.images) - len({document for document, _ in originals})),
        ("documents that repeat another's text", len(data.images) - len(set(text_of.values()))),
        ("characters of the longest document", max(map(len, text_of.values()))),
        ("characters of the longest query", max(len(query.text) for query in data.captions)),
    )
    examples = tuple(
        (
            _short(query.external_id),
            _short(query.text),
            _short(query.image_external_id),
            _short(text_of[query.image_external_id]),
        )
        for query in (data.captions[place] for place in _places(len(data.captions)))
    )
    return (
        Table("what was read", ("", "count"), rows),
        Table("examples", ("query", "text", "document", "text of the document"), examples),
    )


def article(noun: str) -> str:
    """``a`` or ``an``."""
    return "an" if noun[0] in "aeiou" else "a"


def _places(count: int) -> list[int]:
    """Places of the start, the middle and the end."""
    return list(dict.fromkeys(round(place * (count - 1) / (EXAMPLES - 1)) for place in range(EXAMPLES)))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _tail(file: str) -> str:
    return file if len(file) <= _WIDTH else "…" + file[1 - _WIDTH :]
