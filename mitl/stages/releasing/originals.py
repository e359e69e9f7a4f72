"""Going through originals that people or CxC refused, and writing exclusion lists."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from mitl.core.formats import csv_bytes
from mitl.core.whole_files import write_kept
from mitl.crowd.context import open_context
from mitl.datasets.duplicates import MAX_DISTANCE, nearest, picture_files, picture_hashes, same_set
from mitl.db.session import open_database
from mitl.db.store import columns, releases
from mitl.db.store import items as item_store
from mitl.errors import DatasetError, StoreError
from mitl.positives.merging import CXC_POSITIVE
from mitl.positives.pair_answers import PairAnswer, majority_answers
from mitl.progress import Progress, no_progress
from mitl.records import Environment, Label, OriginalVerdict, Pair, StageResult, Table, several
from mitl.records.results import printed_by
from mitl.settings import Settings

COLUMNS = ("kind", "image_id", "caption_id", "reason", "source")


@printed_by("review originals")
class OriginalsCounts(TypedDict):
    """The originals that were refused."""

    refused: Annotated[int, "originals that people answered no, or that earlier ratings put low"]
    waiting: Annotated[int, "those of which nobody has said anything yet"]
    captions: Annotated[list[str], "their captions' own ids"]


@printed_by("review originals keep", "review originals wrong", "review originals meaningless")
class VerdictCounts(TypedDict):
    """What a person said of originals."""

    changed: Annotated[int, "captions whose verdict is new"]
    verdict: Annotated[str, "keep, wrong or meaningless"]


@printed_by("review originals export")
class OriginalsExportCounts(TypedDict):
    """What was written as exclusion lists."""

    exclusions: Annotated[int, "entries written"]


@printed_by("review originals export", key="paths")
class OriginalsExportPaths(TypedDict):
    """Where the exclusion lists are."""

    exclusions: Annotated[str, "the CSV file"]


class NearCopyCounts(TypedDict):
    """One near copy as ``--json`` prints it."""

    image: str
    distance: int
    other: str


@printed_by("review duplicates")
class DuplicatesCounts(TypedDict, total=False):
    """What was looked for, or what was taken out."""

    duplicates: Annotated[
        list[NearCopyCounts], "each near copy: image, distance (bits of 64), other (its file)"
    ]
    images: Annotated[int, "images of the project that were looked at"]
    others: Annotated[int, "pictures of the folder"]
    excluded: Annotated[int, "images that `--exclude` took out now"]


def originals(
    settings: Settings, environment: Environment | None = None, *, cxc_below: float = CXC_POSITIVE
) -> StageResult:
    """List the originals that people or CxC refused, with what a person has said of them so far."""
    with open_context(settings, environment, read_only=True) as context:
        session = context.session
        dataset = item_store.dataset(session)
        images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
        captions = {c.id: c for c in item_store.captions(session, dataset.id)}
        refused = refused_originals(
            [Pair(caption.image_id, caption.id) for caption in captions.values()],
            majority_answers(columns.judgement_columns(session, context.environment)),
            item_store.ratings(session),
            cxc_below=cxc_below,
        )
        verdicts, lists = releases.verdicts(session), item_store.excluded(session)
    rows, waiting = [], []
    for original in refused:
        pair, answer, score = original.pair, original.answer, original.score
        image, caption = images[pair.image_id], captions[pair.caption_id]
        verdict = verdicts.get(caption.id)
        said = verdict.value if verdict is not None else "listed" if pair in lists else "waits"
        people = None if answer is None else f"no ({answer.n_judgements})"
        cxc = None if score is None else f"{score:.2f}"
        picture = str(image.path or image.url or "")
        rows.append((caption.external_id, image.external_id, people, cxc, said, caption.text, picture))
        if said == "waits":
            waiting.append(caption.external_id)
    counts: OriginalsCounts = {"refused": len(refused), "waiting": len(waiting), "captions": waiting}
    if not refused:
        return StageResult.nothing("neither people nor earlier ratings refused an original", counts)
    header = ("caption", "image", "people", "rated", "verdict", "text", "picture")
    title = f"{len(refused):,} originals refused, {len(waiting):,} waiting for a person"
    return StageResult(
        counts=counts,
        tables=(Table(title, header, tuple(rows)),),
        next="mitl review originals keep|wrong|meaningless CAPTION…"
        if waiting
        else "mitl build-dataset --out DIR",
    )


def decide(settings: Settings, captions: Sequence[str], verdict: OriginalVerdict) -> StageResult:
    """Store what a person says of these captions with their own images; exclusion lists follow at once.

    Raises:
        StoreError: a caption is unknown; nothing is stored then.
    """
    at = dt.datetime.now(dt.UTC)
    with open_database(settings.db_url) as session:
        pairs = releases.captions_by_external_id(session, captions)
        strange = [name for name in captions if name not in pairs]
        if strange:
            raise StoreError(
                f"there is no caption {strange[0]!r} in this data set; `mitl review originals` lists those that wait"
            )
        changed = sum(
            releases.set_verdict(session, pairs[name], verdict, at) for name in dict.fromkeys(captions)
        )
        session.commit()
    said = {
        OriginalVerdict.KEEP: "left off this review's exclusion lists",
        OriginalVerdict.WRONG: "excluded from the own image",
        OriginalVerdict.MEANINGLESS: "excluded from every pair",
    }[verdict]
    counts: VerdictCounts = {"changed": changed, "verdict": verdict.value}
    after = "mitl review originals"
    if not changed:
        return StageResult.nothing("that was said before", counts, after)
    return StageResult(counts=counts, lines=(f"{several(changed, 'caption')} {said}",), next=after)


def export(settings: Settings, out: Path, *, replace: bool = False) -> StageResult:
    """Write all exclusion lists of the project as one CSV that ``mitl init --exclude`` reads.

    Raises:
        UsageError: the file holds something else and ``replace`` is false, or the place cannot be written.
    """
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        images, captions = item_store.names(session, dataset.id)
        rows = item_store.exclusions(session)
    lines: list[Sequence[object]] = [COLUMNS]
    for row in rows:
        image = None if row.image_id is None else images[row.image_id]
        caption = None if row.caption_id is None else captions[row.caption_id]
        lines.append((row.kind.value, image, caption, row.reason, row.source))
    changed = write_kept(out, csv_bytes(lines), replace=replace)
    counts: OriginalsExportCounts = {"exclusions": len(rows)}
    paths: OriginalsExportPaths = {"exclusions": str(out)}
    return StageResult(
        status="done" if changed else "nothing_to_do",
        counts=counts,
        paths=paths,
        lines=(
            f"{several(len(rows), 'entry', 'entries')} of exclusion lists: {out}"
            if changed
            else f"nothing to do: {out} holds exactly these exclusion lists already",
        ),
    )


@dataclass(frozen=True, slots=True)
class RefusedOriginal:
    """A caption with its own image, and what speaks against the pair."""

    pair: Pair
    answer: PairAnswer | None
    """What people answered, where they were asked and all said no match."""
    score: float | None
    """CxC's rating, where it is under the threshold."""


def refused_originals(
    originals: Collection[Pair],
    answers: Mapping[Pair, PairAnswer],
    ratings: Mapping[Pair, float],
    *,
    cxc_below: float = CXC_POSITIVE,
) -> list[RefusedOriginal]:
    """The originals that people answered ``no``, or that CxC rates under ``cxc_below``, in order of the pairs.

    Source: Chun et al., ECCV Caption, appendix C.1, step 1. On the COCO test split CxC alone refuses 29 originals;
    all of them are among the 32 captions that the paper lists.
    """
    listed = []
    for pair in sorted(originals):
        answer, score = answers.get(pair), ratings.get(pair)
        refused = answer if answer is not None and answer.label is Label.NO else None
        low = score if score is not None and score < cxc_below else None
        if refused is not None or low is not None:
            listed.append(RefusedOriginal(pair, refused, low))
    return listed


SOURCE = "duplicates by perceptual hash"


def duplicates(
    settings: Settings, folder: Path, *, max_distance: int = MAX_DISTANCE, progress: Progress = no_progress
) -> StageResult:
    """List the project's images that have a near copy in a folder of pictures; a person looks and decides.

    Source: Chun et al., ECCV Caption, appendix C.1: one image of the test split was found in the training set.

    Raises:
        DatasetError: pictures are missing or cannot be read, or both sets are the same files.
    """
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        images = item_store.images(session, dataset.id, settings.project)
    here = [(image, image.path) for image in images if image.path is not None and image.path.exists()]
    if not here:
        raise DatasetError(
            "no image of this project has a picture file here; say where they are with `mitl init --images`"
        )
    paths, others = [path for _, path in here], picture_files(folder)
    both = same_set(paths, others)
    if both is not None:
        raise DatasetError(f"{str(both)!r} is the project's own picture; name the folder of another set")
    with progress("hash pictures", len(paths) + len(others)) as advance:
        copies = nearest(
            picture_hashes(paths, advance), picture_hashes(others, advance), max_distance=max_distance
        )
    missing = len(images) - len(here)
    rows = tuple(
        (here[copy.place][0].external_id, copy.distance, str(paths[copy.place]), str(others[copy.other]))
        for copy in sorted(copies, key=lambda copy: (copy.distance, copy.place))
    )
    looked = f"{several(len(here), 'image')} against {several(len(others), 'picture')}"
    warnings = (f"not looked at for want of a picture file: {several(missing, 'image')}",) if missing else ()
    counts: DuplicatesCounts = {
        "duplicates": [{"image": row[0], "distance": row[1], "other": row[3]} for row in rows],
        "images": len(here),
        "others": len(others),
    }
    if not rows:
        return StageResult(counts=counts, warnings=warnings, lines=(f"no near copy: {looked}",))
    title = f"{several(len(rows), 'near copy', 'near copies')}: {looked}"
    return StageResult(
        counts=counts,
        warnings=warnings,
        tables=(Table(title, ("image", "bits", "picture", "copy"), rows),),
        lines=("look at each: other views of one scene may be near as well",),
        next="mitl review duplicates --exclude IMAGE…",
    )


def exclude(settings: Settings, external_ids: Sequence[str]) -> StageResult:
    """Take these images, which a person found to be duplicates, out of all releases.

    Raises:
        StoreError: an image is unknown; nothing is stored then.
    """
    with open_database(settings.db_url) as session:
        dataset = item_store.dataset(session)
        ids, _ = item_store.id_maps(session, dataset.id)
        strange = [name for name in external_ids if name not in ids]
        if strange:
            raise StoreError(
                f"there is no image {strange[0]!r} in this data set; name images by their own ids"
            )
        new = releases.exclude_images(
            session, [ids[name] for name in external_ids], "also in a training set", SOURCE
        )
        session.commit()
    counts: DuplicatesCounts = {"excluded": new}
    after = "mitl build-dataset --out DIR"
    if not new:
        return StageResult.nothing("they are excluded already", counts, after)
    return StageResult(
        counts=counts, lines=(f"{several(new, 'image')} excluded from every pair",), next=after
    )
