"""Data sets: images, captions, ratings, exclusion lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from mitl import records
from mitl.db.models import Caption, Dataset, Exclusion, Image, Rating
from mitl.db.store.bulk import add_rows
from mitl.errors import DatasetError, StoreError
from mitl.records import CaptionItem, ExclusionKind, IdKind, ImageItem, Pair, RetrievalSet


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


@dataclass(frozen=True, slots=True)
class ExclusionRow:
    """An exclusion list's entry by surrogate ids."""

    kind: ExclusionKind
    image_id: int | None
    caption_id: int | None
    reason: str
    source: str

    def covers(self, pair: Pair) -> bool:
        """Whether the entry takes this pair away."""
        if self.kind is ExclusionKind.CAPTION:
            return pair.caption_id == self.caption_id
        if self.kind is ExclusionKind.IMAGE:
            return pair.image_id == self.image_id
        return (pair.image_id, pair.caption_id) == (self.image_id, self.caption_id)


def add_dataset(session: Session, data: RetrievalSet, content_sha256: str) -> int:
    """Insert a data set; surrogate ids follow the tie order of ``data``. Returns the dataset's id."""
    dataset = Dataset(name=data.name, kind=data.kind, id_kind=data.id_kind, content_sha256=content_sha256)
    session.add(dataset)
    session.flush()
    first_image = (session.scalar(select(func.max(Image.id))) or 0) + 1
    first_caption = (session.scalar(select(func.max(Caption.id))) or 0) + 1
    ids = {image.external_id: number for number, image in enumerate(data.images, first_image)}
    add_rows(
        session,
        Image,
        (
            {
                "id": ids[image.external_id],
                "dataset_id": dataset.id,
                "external_id": image.external_id,
                "file": image.file,
                "url": image.url,
                "width": image.width,
                "height": image.height,
                "sha256": image.sha256,
            }
            for image in data.images
        ),
    )
    add_rows(
        session,
        Caption,
        (
            {
                "id": number,
                "dataset_id": dataset.id,
                "external_id": caption.external_id,
                "image_id": ids[caption.image_external_id],
                "text": caption.text,
            }
            for number, caption in enumerate(data.captions, first_caption)
        ),
    )
    return dataset.id


def find_dataset(session: Session) -> DatasetRow | None:
    """The project's data set, if one is loaded."""
    row = session.execute(select(Dataset).order_by(Dataset.id)).scalars().first()
    if row is None:
        return None
    n_images = session.scalar(select(func.count()).select_from(Image).where(Image.dataset_id == row.id)) or 0
    n_captions = (
        session.scalar(select(func.count()).select_from(Caption).where(Caption.dataset_id == row.id)) or 0
    )
    return DatasetRow(row.id, row.name, row.kind, row.id_kind, row.content_sha256, n_images, n_captions)


def dataset(session: Session) -> DatasetRow:
    """The project's data set; StoreError where none is loaded."""
    found = find_dataset(session)
    if found is None:
        raise StoreError("no data set is loaded; run `mitl init` first")
    return found


def images(session: Session, dataset_id: int, project: Path) -> list[ImageItem]:
    """All images in tie order; relative files are resolved against the project folder."""
    query = select(Image.id, Image.external_id, Image.file, Image.url).where(Image.dataset_id == dataset_id)
    return [
        ImageItem(id_, external, None if file is None else project / file, url)
        for id_, external, file, url in session.execute(query.order_by(Image.id))
    ]


def captions(session: Session, dataset_id: int) -> list[CaptionItem]:
    """All captions in tie order."""
    query = select(Caption.id, Caption.external_id, Caption.image_id, Caption.text)
    rows = session.execute(query.where(Caption.dataset_id == dataset_id).order_by(Caption.id))
    return [CaptionItem(*row) for row in rows]


def update_places(session: Session, dataset_id: int, data: RetrievalSet) -> int:
    """Write down files and addresses that were named anew; returns how many images changed."""
    known = {
        row[0]: row[1:]
        for row in session.execute(
            select(Image.external_id, Image.id, Image.file, Image.url).where(Image.dataset_id == dataset_id)
        )
    }
    changed = 0
    for image in data.images:
        id_, file, url = known[image.external_id]
        new = (image.file or file, image.url or url)
        if new != (file, url):
            session.execute(update(Image).where(Image.id == id_).values(file=new[0], url=new[1]))
            changed += 1
    return changed


def add_ratings(session: Session, dataset_id: int, given: Iterable[records.Rating]) -> int:
    """Insert the ratings that are new and whose image and caption are in the data set; returns how many."""
    image_ids, caption_ids = id_maps(session, dataset_id)
    known = ratings(session)
    rows = {}
    for rating in given:
        image = image_ids.get(rating.image_external_id)
        caption = caption_ids.get(rating.caption_external_id)
        if image is not None and caption is not None and Pair(image, caption) not in known:
            rows[image, caption] = {
                "image_id": image,
                "caption_id": caption,
                "score": rating.score,
                "sampling_method": rating.sampling_method,
            }
    add_rows(session, Rating, (rows[key] for key in sorted(rows)))
    return len(rows)


def ratings(session: Session) -> dict[Pair, float]:
    """CxC's score of each rated pair, 0 to 5."""
    query = select(Rating.image_id, Rating.caption_id, Rating.score)
    return {Pair(image, caption): score for image, caption, score in session.execute(query)}


def add_exclusions(session: Session, dataset_id: int, given: Iterable[records.Exclusion]) -> int:
    """Insert the entries that are new and concern this data set; a pair without image means the caption's own."""
    image_ids, caption_ids = id_maps(session, dataset_id)
    own = {caption.id: caption.image_id for caption in captions(session, dataset_id)}
    known = {(row.kind, row.image_id, row.caption_id) for row in exclusions(session)}
    rows: dict[tuple[ExclusionKind, int | None, int | None], dict[str, object]] = {}
    for entry in given:
        image = None if entry.image_external_id is None else image_ids.get(entry.image_external_id)
        caption = None if entry.caption_external_id is None else caption_ids.get(entry.caption_external_id)
        if entry.kind is ExclusionKind.PAIR and entry.image_external_id is None and caption is not None:
            image = own[caption]
        needed = {
            ExclusionKind.CAPTION: (caption,),
            ExclusionKind.IMAGE: (image,),
            ExclusionKind.PAIR: (image, caption),
            ExclusionKind.WRONG: (image, caption),
        }[entry.kind]
        key = (entry.kind, image, caption)
        if None not in needed and key not in known:
            rows[key] = {
                "kind": entry.kind,
                "image_id": image,
                "caption_id": caption,
                "reason": entry.reason,
                "source": entry.source,
            }
    add_rows(session, Exclusion, rows.values())
    return len(rows)


def exclusions(session: Session) -> list[ExclusionRow]:
    """All exclusion lists' entries."""
    query = select(
        Exclusion.kind, Exclusion.image_id, Exclusion.caption_id, Exclusion.reason, Exclusion.source
    ).order_by(Exclusion.id)
    return [ExclusionRow(*row) for row in session.execute(query)]


def id_maps(session: Session, dataset_id: int) -> tuple[dict[str, int], dict[str, int]]:
    """External id → surrogate, of the images and of the captions."""
    image_rows = session.execute(select(Image.external_id, Image.id).where(Image.dataset_id == dataset_id))
    caption_rows = session.execute(
        select(Caption.external_id, Caption.id).where(Caption.dataset_id == dataset_id)
    )
    return dict(image_rows.all()), dict(caption_rows.all())


def resolve(known: dict[str, int], wanted: Sequence[str], what: str) -> list[int]:
    """Surrogates of these external ids, ascending no repeats; DatasetError names the first unknown."""
    for external in wanted:
        if external not in known:
            raise DatasetError(f"{what} {external!r} is not in the data set of {len(known):,} {what}s")
    return sorted({known[external] for external in wanted})
