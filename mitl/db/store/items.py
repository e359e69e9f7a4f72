"""Data sets: sides of items, ratings, exclusion lists; and images and captions as a view of two sides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlalchemy import Select, and_, func, select, update
from sqlalchemy.orm import Session

from mitl import records
from mitl.db.base import columns, values
from mitl.db.models import (
    Dataset,
    DirectionOfSearch,
    ExclusionEntry,
    ItemRow,
    PartRow,
    RatingRow,
    RatingSource,
    SideRow,
)
from mitl.db.store.statements import add_rows
from mitl.errors import DatasetError, StoreError
from mitl.positives.exclusions import Exclusions
from mitl.records import (
    CaptionItem,
    Direction,
    ExclusionKind,
    IdKind,
    ImageItem,
    ItemSet,
    Pair,
    PartKind,
    RetrievalSet,
    several,
)
from mitl.records.forms import IMAGES, SET_FORMS, SetForm

_FIRST = and_(PartRow.side_id == ItemRow.side_id, PartRow.item_id == ItemRow.id, PartRow.place == 1)
"""Images have one part each; a caption's text comes first, then the reference of a composed query."""
_REFERENCE = 2
"""The place of a composed query's reference, whose text is the external id of that image."""
LEFT, RIGHT = (sorted({sides[place] for sides in SET_FORMS}) for place in (0, 1))
"""Names of the sides that stand in the place of images, and of captions."""
QRELS = "qrels"
"""How a rating is called that says no more than that a pair is an original positive: an item may have several."""


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A loaded data set."""

    id: int
    name: str
    kind: str
    id_kind: IdKind
    content_sha256: str
    n_images: int
    n_captions: int
    sides: Mapping[str, int]
    """Name → row."""
    directions: Mapping[str, tuple[str, str]]
    """Name → the side that asks, and the one that is searched."""

    @property
    def pair_sides(self) -> tuple[str, str]:
        """What the left and the right side of pairs are called; image and caption where there are others."""
        return _pair_sides(self.sides)

    @property
    def form(self) -> SetForm:
        """What searches in what."""
        return SET_FORMS[self.pair_sides]

    @property
    def ways(self) -> Mapping[Direction, str]:
        """What the data set calls each direction."""
        return self.form.way_names


@dataclass(frozen=True, slots=True)
class ExclusionRow:
    """An exclusion list's entry by surrogate ids."""

    kind: ExclusionKind
    image_id: int | None
    caption_id: int | None
    reason: str
    source: str


def add_dataset(session: Session, data: ItemSet | RetrievalSet, content_sha256: str) -> int:
    """Insert a data set; the numbers of items follow the tie order of ``data``. Returns the dataset's id."""
    positives = data.positives if isinstance(data, RetrievalSet) else ()
    data = data.item_set if isinstance(data, RetrievalSet) else data
    dataset = Dataset(name=data.name, kind=data.kind, id_kind=data.id_kind, content_sha256=content_sha256)
    session.add(dataset)
    session.flush()
    rows = [SideRow(dataset_id=dataset.id, name=side.name) for side in data.sides]
    session.add_all(rows)
    session.flush()
    sides = {row.name: row.id for row in rows}
    numbers: dict[str, dict[str, int]] = {}
    for side in data.sides:
        first = _last_number(session, side.name) + 1
        numbers[side.name] = {item.external_id: n for n, item in enumerate(side.items, first)}
        groups = {} if side.made_for is None else numbers[side.made_for]
        group_side = None if side.made_for is None else sides[side.made_for]
        add_rows(
            session,
            ItemRow,
            (
                {
                    "side_id": sides[side.name],
                    "id": number,
                    "external_id": item.external_id,
                    "group_side_id": None if item.group is None else group_side,
                    "group_id": None if item.group is None else groups[item.group],
                }
                for number, item in enumerate(side.items, first)
            ),
        )
        add_rows(
            session,
            PartRow,
            (
                {"side_id": sides[side.name], "item_id": number, "place": place, **asdict(part)}
                for number, item in enumerate(side.items, first)
                for place, part in enumerate(item.parts, 1)
            ),
        )
    add_rows(
        session,
        DirectionOfSearch,
        (
            {
                "dataset_id": dataset.id,
                "name": name,
                "query_side_id": sides[query],
                "gallery_side_id": sides[gallery],
            }
            for name, (query, gallery) in data.directions.items()
        ),
    )
    if positives:
        left, right = (data.sides[place].name for place in (0, 1))
        add_rows(
            session,
            RatingRow,
            (
                {
                    "left_side_id": sides[left],
                    "left_id": numbers[left][row],
                    "right_side_id": sides[right],
                    "right_id": numbers[right][other],
                    "score": 1.0,
                    "sampling_method": QRELS,
                }
                for row, other in positives
            ),
        )
    return dataset.id


def _last_number(session: Session, side: str) -> int:
    """The highest number on a side of that name, of any data set."""
    query = (
        select(func.max(ItemRow.id)).join(SideRow, SideRow.id == ItemRow.side_id).where(SideRow.name == side)
    )
    return session.scalar(query) or 0


# Made once: most commands ask, and to build a statement takes longer than to run it.
_OLDEST = select(func.min(Dataset.id)).scalar_subquery()
_COUNT = select(func.count()).where(ItemRow.side_id == SideRow.id).correlate(SideRow).scalar_subquery()
_SIDES = (
    select(Dataset, SideRow.name, SideRow.id, _COUNT)
    .outerjoin(SideRow, SideRow.dataset_id == Dataset.id)
    .where(Dataset.id == _OLDEST)
    .order_by(SideRow.id)
)
_WAYS = select(
    DirectionOfSearch.name, DirectionOfSearch.query_side_id, DirectionOfSearch.gallery_side_id
).where(DirectionOfSearch.dataset_id == _OLDEST)


def find_dataset(session: Session) -> DatasetRow | None:
    """The project's data set, if one is loaded."""
    found = session.execute(_SIDES).all()
    if not found:
        return None
    row = found[0][0]
    sides = {name: id_ for _, name, id_, _ in found if id_ is not None}
    counts = {name: count for _, name, _, count in found}
    names = {id_: name for name, id_ in sides.items()}
    left, right = _pair_sides(sides)
    return DatasetRow(
        row.id,
        row.name,
        row.kind,
        row.id_kind,
        row.content_sha256,
        n_images=counts.get(left, 0),
        n_captions=counts.get(right, 0),
        sides=sides,
        directions={name: (names[query], names[gallery]) for name, query, gallery in session.execute(_WAYS)},
    )


def dataset(session: Session) -> DatasetRow:
    """The project's data set; StoreError where none is loaded."""
    row = find_dataset(session)
    if row is None:
        raise StoreError("no data set is loaded; run `mitl init` first")
    return row


def images(session: Session, dataset_id: int, project: Path) -> list[ImageItem]:
    """All images in tie order; relative files are resolved against the project folder.

    Of a set of texts, the documents with their texts.
    """
    query = select(ItemRow.id, ItemRow.external_id, PartRow.file, PartRow.url, PartRow.kind, PartRow.text)
    query = query.join(PartRow, and_(PartRow.side_id == ItemRow.side_id, PartRow.item_id == ItemRow.id))
    rows = session.execute(_of_side(query, LEFT, dataset_id).order_by(PartRow.place))
    stored: list[ImageItem] = []
    for (id_, external), parts in groupby(rows, key=lambda row: (row[0], row[1])):
        ((_, _, file, url, kind, _), *_) = of_item = list(parts)
        texts = tuple(row[5] for row in of_item if row[4] is PartKind.TEXT)
        stored.append(ImageItem(id_, external, None if file is None else project / file, url, texts, kind))
    return stored


def captions(session: Session, dataset_id: int) -> list[CaptionItem]:
    """All captions in tie order; composed queries with their references."""
    query = select(ItemRow.id, ItemRow.external_id, ItemRow.group_id, PartRow.text).join(PartRow, _FIRST)
    rows = session.execute(_of_side(query, RIGHT, dataset_id)).all()
    changed = references(session, dataset_id)
    return [CaptionItem(id_, external, image, text, changed.get(id_)) for id_, external, image, text in rows]


def references(session: Session, dataset_id: int) -> dict[int, int]:
    """Composed query → the image that its text changes."""
    second = and_(
        PartRow.side_id == ItemRow.side_id, PartRow.item_id == ItemRow.id, PartRow.place == _REFERENCE
    )
    rows = session.execute(
        _of_side(select(ItemRow.id, PartRow.text).join(PartRow, second), RIGHT, dataset_id)
    ).all()
    if not rows:
        return {}
    image_ids, _ = id_maps(session, dataset_id)
    return {query: image_ids[external] for query, external in rows}


def originals(session: Session, dataset_id: int) -> list[Pair]:
    """Each caption with its own image, in tie order of captions; then what else is an original positive."""
    return [Pair(*row) for query in original_pairs(dataset_id) for row in session.execute(query)]


def original_pairs(dataset_id: int) -> tuple[Select[*tuple[Any, ...]], Select[*tuple[Any, ...]]]:
    """The queries for image and caption of each original positive: of captions' own images, and of the others."""
    own = _of_side(select(ItemRow.group_id, ItemRow.id), RIGHT, dataset_id)
    more = select(RatingRow.left_id, RatingRow.right_id).where(RatingRow.sampling_method == QRELS)
    return own, more.order_by(RatingRow.id)


def _of_side(query: Any, names: Sequence[str], dataset_id: int) -> Any:
    """The items of a query that are on a data set's side of such a name, in tie order."""
    of_side = query.join(SideRow, SideRow.id == ItemRow.side_id)
    return of_side.where(SideRow.name.in_(names), SideRow.dataset_id == dataset_id).order_by(ItemRow.id)


def pair_sides(session: Session) -> tuple[int, int]:
    """The sides of pairs, left and right, where no others are named: images and captions, or documents and queries.

    0 where one is missing.
    """
    query = select(SideRow.name, SideRow.id).where(SideRow.dataset_id == _OLDEST)
    sides = dict(session.execute(query).all())
    left, right = _pair_sides(sides)
    return sides.get(left, 0), sides.get(right, 0)


def _pair_sides(names: Collection[str]) -> tuple[str, str]:
    """Which of the sides are those of pairs; image and caption where there are others."""
    return next((both for both in SET_FORMS if set(both) <= set(names)), IMAGES.sides)


def update_places(session: Session, dataset_id: int, data: RetrievalSet) -> int:
    """Write down files and addresses that were named again; returns how many images changed."""
    query = select(ItemRow.external_id, PartRow.side_id, ItemRow.id, PartRow.file, PartRow.url).join(
        PartRow, _FIRST
    )
    stored = {row[0]: row[1:] for row in session.execute(_of_side(query, LEFT, dataset_id))}
    referring = select(SideRow.id).where(SideRow.name.in_(RIGHT), SideRow.dataset_id == dataset_id)
    changed = 0
    for image in data.images:
        side, id_, file, url = stored[image.external_id]
        new = (image.file or file, image.url or url)
        if new != (file, url):
            of_part = (PartRow.side_id == side, PartRow.item_id == id_, PartRow.place == 1)
            session.execute(update(PartRow).where(*of_part).values(file=new[0], url=new[1]))
            shown = (
                PartRow.side_id.in_(referring),
                PartRow.place == _REFERENCE,
                PartRow.text == image.external_id,
            )
            session.execute(update(PartRow).where(*shown).values(file=new[0], url=new[1]))
            changed += 1
    return changed


def add_ratings(session: Session, dataset_id: int, given: Iterable[records.Rating]) -> int:
    """Insert the ratings that are new and whose image and caption are in the data set; returns how many.

    Raises:
        DatasetError: a pair has another score here, or a method is called as original positives are.
    """
    image_ids, caption_ids = id_maps(session, dataset_id)
    left, right = pair_sides(session)
    rated = ratings(session)
    rows = {}
    for rating in given:
        image = image_ids.get(rating.image_external_id)
        caption = caption_ids.get(rating.caption_external_id)
        if image is None or caption is None:
            continue
        if rating.sampling_method == QRELS:
            raise DatasetError(
                f"image {rating.image_external_id!r} with caption {rating.caption_external_id!r} has the sampling "
                f"method {QRELS!r}, which names original positives here; call it otherwise"
            )
        score = rated.get(Pair(image, caption))
        if score not in (None, rating.score):
            raise DatasetError(
                f"image {rating.image_external_id!r} with caption {rating.caption_external_id!r} is rated "
                f"{rating.score:g} in the file, and {score:g} in this project already; take the row out, or make "
                "another project folder for these ratings"
            )
        if score is None:
            rows[image, caption] = values(
                RatingRow, rating, left_side_id=left, left_id=image, right_side_id=right, right_id=caption
            )
    add_rows(session, RatingRow, (rows[key] for key in sorted(rows)))
    return len(rows)


def add_rating_file(session: Session, file: records.RatingFile | None) -> None:
    """Remember a file whose ratings are in, unless its bytes are known or it rates nothing here."""
    if file is None or not file.ratings:
        return
    if session.scalar(select(RatingSource.id).where(RatingSource.sha256 == file.sha256)) is None:
        session.add(RatingSource(**asdict(file)))


def rating_files(session: Session) -> tuple[records.RatingFile, ...]:
    """The files that ratings were read from, in order of arrival; none where some came before files were noted."""
    query = select(*columns(records.RatingFile, RatingSource)).order_by(RatingSource.id)
    files = tuple(records.RatingFile(*row) for row in session.execute(query))
    stored = session.scalar(select(func.count()).select_from(rated_pairs(session).subquery())) or 0
    return files if stored <= sum(file.ratings for file in files) else ()


def ratings(session: Session) -> dict[Pair, float]:
    """CxC's score of each rated pair, 0 to 5."""
    return {Pair(image, caption): score for image, caption, score in session.execute(rated_pairs(session))}


def rated_pairs(session: Session) -> Select[*tuple[Any, ...]]:
    """The query for image, caption and score of each of these."""
    left, right = pair_sides(session)
    return select(RatingRow.left_id, RatingRow.right_id, RatingRow.score).where(
        RatingRow.left_side_id == left, RatingRow.right_side_id == right, RatingRow.sampling_method != QRELS
    )


def add_exclusions(session: Session, dataset_id: int, given: Iterable[records.Exclusion]) -> int:
    """Insert the entries that are new and concern this data set; a pair without image means the caption's own."""
    image_ids, caption_ids = id_maps(session, dataset_id)
    left, right = pair_sides(session)
    image_of = {caption.id: caption.image_id for caption in captions(session, dataset_id)}
    stored = {(row.kind, row.image_id, row.caption_id) for row in exclusions(session)}
    rows: dict[tuple[ExclusionKind, int | None, int | None], dict[str, object]] = {}
    for entry in given:
        image = None if entry.image_external_id is None else image_ids.get(entry.image_external_id)
        caption = None if entry.caption_external_id is None else caption_ids.get(entry.caption_external_id)
        if entry.kind is ExclusionKind.PAIR and entry.image_external_id is None and caption is not None:
            image = image_of[caption]
        needed = {
            ExclusionKind.CAPTION: (caption,),
            ExclusionKind.IMAGE: (image,),
            ExclusionKind.PAIR: (image, caption),
            ExclusionKind.WRONG: (image, caption),
        }[entry.kind]
        key = (entry.kind, image, caption)
        if None not in needed and key not in stored:
            rows[key] = {
                "kind": entry.kind,
                "left_side_id": None if image is None else left,
                "left_id": image,
                "right_side_id": None if caption is None else right,
                "right_id": caption,
                "reason": entry.reason,
                "source": entry.source,
            }
    add_rows(session, ExclusionEntry, rows.values())
    return len(rows)


def exclusions(session: Session) -> list[ExclusionRow]:
    """All exclusion lists' entries."""
    query = select(
        *columns(
            ExclusionRow, ExclusionEntry, image_id=ExclusionEntry.left_id, caption_id=ExclusionEntry.right_id
        )
    ).order_by(ExclusionEntry.id)
    return [ExclusionRow(*row) for row in session.execute(query)]


def excluded(session: Session) -> Exclusions:
    """What all exclusion lists take out."""
    return Exclusions.of((row.kind, row.image_id, row.caption_id) for row in exclusions(session))


def id_maps(session: Session, dataset_id: int) -> tuple[dict[str, int], dict[str, int]]:
    """External id → surrogate, of the images and of the captions."""
    query = select(ItemRow.external_id, ItemRow.id)
    image_ids, caption_ids = (
        dict(session.execute(_of_side(query, names, dataset_id)).all()) for names in (LEFT, RIGHT)
    )
    return image_ids, caption_ids


def names(session: Session, dataset_id: int) -> tuple[dict[int, str], dict[int, str]]:
    """Surrogate → external id, of the images and of the captions."""
    images, captions = ({row: name for name, row in ids.items()} for ids in id_maps(session, dataset_id))
    return images, captions


def resolve(known: Mapping[str, int], wanted: Sequence[str], noun: str, nouns: str) -> list[int]:
    """Surrogates of these external ids, ascending no repeats; DatasetError names the first unknown."""
    for external in wanted:
        if external not in known:
            raise DatasetError(
                f"{noun} {external!r} is not in the data set of {several(len(known), noun, nouns)}"
            )
    return sorted({known[external] for external in wanted})
