"""Where pairs come from: a project's database, or the tables of a release beside a project that has its items."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from annotators.base import ids_of
from mitl.core.arrays import Ints, pack_ids, places, unpack_ids
from mitl.crowd.context import open_context
from mitl.db.engine import parse_url
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store.columns import judgement_columns, proposal_columns
from mitl.errors import ReleaseError
from mitl.explorer.pairs import Explored, ExploredItem, explored
from mitl.positives.folders import dataset_of, require_one_dataset
from mitl.positives.merging import MATCHES
from mitl.records import CaptionItem, Environment, ImageItem
from mitl.records.frames import LABELS, NONE, counts
from mitl.settings import Settings
from mitl.stages.auditing.pools import merged_now
from mitl.stages.evaluating.opened import load

Items = tuple[list[ExploredItem], list[ExploredItem]]


def of_project(settings: Settings, environment: Environment | None) -> Explored:
    """All that was proposed, asked and annotated in one environment.

    Raises:
        StoreError: there is no database, or it is of another version.
    """
    with open_context(settings, environment, read_only=True) as context:
        session = context.session
        dataset = item_store.dataset(session)
        images = item_store.images(session, dataset.id, settings.project)
        captions = item_store.captions(session, dataset.id)
        merged = merged_now(context).pairs
        proposed = proposal_columns(session)
        judgements = judgement_columns(session, context.environment)
    sides = ids_of(images), ids_of(captions)
    judgements = judgements[counts(judgements)]
    return explored(
        pd.DataFrame(
            {
                "pair": _placed(merged["pair"], sides),
                "label": merged["label"],
                "original": merged["original"],
                "positive": merged["kept"],
            }
        ),
        pd.DataFrame(
            {
                "pair": _placed(proposed["pair"], sides),
                "annotator": proposed["annotator"].cat.codes,
                "rank": proposed["rank"],
            }
        ),
        pd.DataFrame(
            {"pair": _placed(judgements["pair"], sides), "yes": MATCHES[judgements["label"].to_numpy()]}
        ),
        _items(images, captions),
        tuple(proposed["annotator"].cat.categories),
        dataset.pair_sides,
    )


def of_release(folder: Path, settings: Settings) -> Explored:
    """A release's positives, negatives and answers; texts and pictures are those of the project, where there is one.

    Without a project ids stand alone, and an original that people refused cannot be told from another pair.

    Raises:
        ReleaseError: there is no release, it was changed, or the project is of another data set.
    """
    release = load(folder)
    positives, negatives, answers = release.positives, release.negatives, release.judgements
    judged = pd.concat([positives.assign(positive=True), negatives.assign(positive=False)], ignore_index=True)
    columns = [f"{side}_id" for side in release.form.sides]
    _require(positives, release.name, *columns, "label", "annotators", "sources")
    _require(negatives, release.name, *columns, "label", "annotators")
    _require(answers, release.name, *columns, "label", "usable")
    for table in (judged, answers):
        table[columns] = table[columns].astype(str)
    items = _items_of(settings, folder)
    if not items[0]:
        left, right = columns
        items = _named(judged[left], answers[left]), _named(judged[right], answers[right])
    image_of = {caption.name: caption.written_for for caption in items[1]}
    original = [
        image_of.get(caption) == image or (isinstance(sources, np.ndarray) and "original" in sources)
        for image, caption, sources in zip(*(judged[n] for n in (*columns, "sources")), strict=True)
    ]
    pair = _packed(judged[columns], items, release.name)
    answers = answers[answers["usable"] & answers["label"].notna()]
    annotators = sorted({name for proposers in judged["annotators"] for name in proposers})
    of_pair = pd.DataFrame({"pair": pair, "annotator": judged["annotators"]}).explode("annotator").dropna()
    place_of = {name: place for place, name in enumerate(annotators)}
    return explored(
        pd.DataFrame(
            {
                "pair": pair,
                "label": _labels(judged["label"]),
                "original": original,
                "positive": judged["positive"],
            }
        ),
        of_pair.assign(annotator=of_pair["annotator"].map(place_of).astype(np.int64), rank=0),
        pd.DataFrame(
            {
                "pair": _packed(answers[columns], items, release.name),
                "yes": MATCHES[_labels(answers["label"])],
            }
        ),
        items,
        annotators,
        release.form.sides,
    )


def _require(table: pd.DataFrame, name: str, *columns: str) -> None:
    """ReleaseError where a table of the release lacks one of these."""
    lacking = next((column for column in columns if column not in table), None)
    if lacking is not None:
        raise ReleaseError(f"a table of the release {name!r} lacks the column {lacking!r}; build it again")


_ELSEWHERE = "name that one's project by --project, or an empty folder to see ids alone"


def _items_of(settings: Settings, folder: Path) -> Items:
    """A project's items; none where there is no project.

    Raises:
        ReleaseError: the release in the folder is of another data set.
    """
    place = parse_url(settings.db_url)
    if place.get_backend_name() == "sqlite" and not Path(place.database or "").exists():
        return [], []
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        both = ("this project", dataset.content_sha256), (f"the release {str(folder)!r}", dataset_of(folder))
        require_one_dataset(*both, remedy=_ELSEWHERE)
        images = item_store.images(session, dataset.id, settings.project)
        return _items(images, item_store.captions(session, dataset.id))


def _items(images: Sequence[ImageItem], captions: Sequence[CaptionItem]) -> Items:
    name_of = {image.id: image.external_id for image in images}
    place_of = {image.id: place for place, image in enumerate(images)}
    return (
        [
            ExploredItem(image.external_id, "\n".join(image.texts), image.path, image.url, part=image.kind)
            for image in images
        ],
        [
            ExploredItem(
                caption.external_id,
                caption.text,
                written_for=name_of[caption.image_id],
                reference_at=None if caption.reference_id is None else place_of[caption.reference_id],
            )
            for caption in captions
        ],
    )


_DIGITS = re.compile(r"(\d+)")


def _named(*ids: pd.Series[str]) -> list[ExploredItem]:
    """Ids alone, in their order: 2 before 10."""
    distinct = pd.unique(pd.concat(ids))
    return [
        ExploredItem(external_id)
        for external_id in sorted(
            distinct, key=lambda id_: [(p.zfill(20) if p.isdigit() else p) for p in _DIGITS.split(id_)]
        )
    ]


def _placed(pairs: pd.Series[int], sides: tuple[Ints, Ints]) -> Ints:
    """Pairs of ids as pairs of places among the items, which stand in the order of their ids."""
    images, captions = unpack_ids(np.asarray(pairs, np.int64))
    return pack_ids(places(sides[0], images), places(sides[1], captions))


def _packed(table: pd.DataFrame, items: Items, name: str) -> Ints:
    """Pairs of external ids, a table of two columns, as pairs of places."""
    sides = []
    for column, side in zip(table.columns, items, strict=True):
        at = {item.name: place for place, item in enumerate(side)}
        missing = table.loc[~table[column].isin(at), column]
        if len(missing):
            raise ReleaseError(
                f"the release {name!r} names {column} {missing.iloc[0]!r}, the project has such as "
                f"{side[0].name if side else '(none)'!r}; it is of another data set: {_ELSEWHERE}"
            )
        sides.append(np.asarray(table[column].map(at), np.int64))
    return pack_ids(sides[0], sides[1])


def _labels(labels: pd.Series[str]) -> NDArray[np.int8]:
    """Places in Label; NONE where there is none."""
    codes = {label.value: code for code, label in enumerate(LABELS)}
    return np.asarray(labels.map(codes).fillna(NONE), np.int8)
