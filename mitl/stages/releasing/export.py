"""A release written as the files of another tool.

A kind of export is a ``Format`` in a module of `mitl.positives.exports`, and a line of ``FORMATS``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np

from mitl.core.whole_files import refuse_within, remove_dead_parts, to_disk, whole_folder
from mitl.datasets.assembling import id_kind, tie_key
from mitl.datasets.objects import read_image_objects
from mitl.errors import FormError, ReleaseError, UsageError
from mitl.metrics.table import USUAL, MetricRequest, asked_metrics
from mitl.positives.exports import hub, mteb
from mitl.positives.exports.content import ENGLISH, ByQuery, Content, Format, SideContent, Way, judged_pairs
from mitl.positives.exports.qrels import BEIR, TREC
from mitl.positives.folders import MANIFEST, dataset_of, holds, read_manifest, require_one_dataset
from mitl.positives.loading import read_references, read_release, sides_of
from mitl.progress import Progress, no_progress
from mitl.records import Direction, IdKind, StageResult, several
from mitl.records.forms import IMAGES, SET_FORMS, TEXTS, SetForm
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.evaluating.gathering import gather
from mitl.stages.evaluating.models import Sides, image_numbers
from mitl.stages.evaluating.positive_sets import located, searched
from mitl.stages.evaluating.project import CaptionTexts, Project, read_project
from mitl.stages.evaluating.request import Against, EvaluationRequest, ModelFiles, Similarity
from mitl.stages.evaluating.scoring import best_items
from mitl.stages.evaluating.tasks import plausible_task

FORMATS: Mapping[str, Format] = {"trec": TREC, "beir": BEIR, "mteb": mteb.FORMAT, "hf": hub.FORMAT}


_LANGUAGE = re.compile("[a-z]{3}-[A-Z][a-z]{3}")
ByDirection = Mapping[Direction, ByQuery]


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What is exported, and how."""

    release: Path
    to: Path
    form: str
    models: Sequence[ModelFiles] = ()
    annotators: Sequence[str] = ()
    similarity: Similarity = "dot"
    depth: int = 1000
    """Places of a run; as many as a query has positives where that is more."""
    with_texts: bool = False
    with_media: bool = False
    objects: Sequence[Path] = ()
    """Files that say which objects an image shows."""
    languages: Sequence[str] = ()
    """Of the texts, such as ``deu-Latn``; English where none is named."""


@printed_by("export")
class ExportCounts(TypedDict):
    """What `mitl export` wrote."""

    files: Annotated[int, "files in the folder"]
    queries: Annotated[dict[str, int], "direction → queries"]
    positives: Annotated[dict[str, int], "direction → positives of these queries"]
    negatives: Annotated[dict[str, int], "direction → pairs judged no match, written with the relevance 0"]
    runs: Annotated[list[str], "models whose rankings were written"]


@printed_by("export", key="paths")
class ExportPaths(TypedDict):
    """What `mitl export` read and wrote."""

    release: Annotated[str, "the release"]
    export: Annotated[str, "the folder that was written"]


def export(settings: Settings, request: ExportRequest, progress: Progress = no_progress) -> StageResult:
    """Write a release, and rankings of models on it, for another tool; the folder is there whole or not at all.

    What is searched is what `mitl evaluate` would search: the project's items in one, else what the models hold, else
    what the release names.

    Raises:
        UsageError: an unknown format, or one that cannot hold what is asked for.
        ReleaseError: no such release, a folder that holds something else, an id that the format cannot hold.
        MitlError: a model's file is missing, malformed or does not fit.
    """
    target = _checked(request)
    is_release = (request.release / MANIFEST).is_file()
    manifest = read_manifest(request.release) if is_release else {}
    form = SET_FORMS[sides_of(manifest)]
    _check_form(request, target, form)
    refuse_within(request.to)
    by_query = read_release(request.release).by_query
    content = _content(settings, request, manifest, by_query, progress)
    files = target.make(content)
    changed = _put(request.to, files)
    lines = [
        f"{way.name}: {several(len(way.queries), 'query', 'queries')} over {several(len(way.gallery), 'item')}, "
        f"{several(way.positives, 'positive')}, {several(way.zeros, 'judged negative')}"
        for way in content.ways
    ]
    counts: ExportCounts = {
        "files": len(files),
        "queries": {way.direction.value: len(way.queries) for way in content.ways},
        "positives": {way.direction.value: way.positives for way in content.ways},
        "negatives": {way.direction.value: way.zeros for way in content.ways},
        "runs": list(content.runs),
    }
    paths: ExportPaths = {"release": str(request.release), "export": str(request.to)}
    told = f"{request.to!s}: {several(len(files), 'file')} of {content.name} as {request.form}"
    return StageResult(
        status="done" if changed else "nothing_to_do",
        counts=counts,
        paths=paths,
        lines=(told if changed else f"nothing to do: {request.to} holds this export", *lines),
        warnings=(*_warnings(content), *target.notes(content)),
    )


def _checked(request: ExportRequest) -> Format:
    form = FORMATS.get(request.form)
    if form is None:
        raise UsageError(f"there is no export called {request.form!r}; known: {', '.join(FORMATS)}")
    options = (
        ("--with-texts", request.with_texts, "holds_texts"),
        ("--with-media", request.with_media, "holds_media"),
        ("--objects", bool(request.objects), "holds_objects"),
        ("--language", bool(request.languages), "holds_languages"),
        ("--model and --annotator", bool(request.models or request.annotators), "holds_runs"),
    )
    for option, given, held in options:
        if given and not getattr(form, held):
            able = ", ".join(name for name, other in FORMATS.items() if getattr(other, held))
            raise UsageError(f"--format {request.form} has no place for {option}; choose of: {able}")
    wrong = next((language for language in request.languages if not _LANGUAGE.fullmatch(language)), None)
    if wrong is not None:
        raise UsageError(
            f"--language is {wrong!r}, but mteb wants a language of ISO 639-3 and a script of ISO 15924, such as "
            "eng-Latn, deu-Latn or arb-Arab"
        )
    return form


def _check_form(request: ExportRequest, target: Format, form: SetForm) -> None:
    """FormError where the tool, or the option, is not for such items."""
    nouns = " and ".join(form.nouns)
    if form.composed and target.no_composed:
        able = ", ".join(name for name, other in FORMATS.items() if not other.no_composed)
        raise FormError(
            f"--format {request.form} cannot hold queries of an image and a text: {target.no_composed}; "
            f"choose of: {able}"
        )
    if request.objects and form is not IMAGES:
        raise FormError(
            f"--objects says what images of captions show, and the release is of {nouns}; leave it out"
        )
    if request.with_media and form is TEXTS:
        raise FormError(f"the release is of {nouns}, which are texts alone; leave --with-media out")


def _warnings(content: Content) -> Iterator[str]:
    for name in set(content.form.ways) - {way.name for way in content.ways}:
        yield f"the release lists no queries of {name}, so this direction is left out"
    if not any(way.queries for way in content.ways):
        yield "the release holds no queries, so nothing can be scored with these files"
    elif not any(way.zeros for way in content.ways):
        yield (
            "the release holds no judged negatives of these queries, so there are no explicit zeros: Judged@k, Bpref "
            "and infAP cannot tell a refused pair from one that nobody looked at"
        )
    held = any(side.texts is not None or side.media is not None for side in content.sides)
    if held and not content.items_license:
        yield (
            f"the licence of the {' and '.join(content.form.nouns)} is not stated; say it under [release] "
            "items_license in mitl.toml, build the release again, and pass on only what you may"
        )


def _content(
    settings: Settings,
    request: ExportRequest,
    manifest: Mapping[str, object],
    by_query: ByDirection,
    progress: Progress,
) -> Content:
    form = SET_FORMS[sides_of(manifest)]
    runs: dict[str, dict[Direction, ByQuery]] = {}
    project: Project | None
    if request.models or request.annotators:
        metrics = MetricRequest(asked_metrics([*USUAL, f"R@{request.depth}"]), "zero")
        against, similarity = Against(request.release), request.similarity
        asked = EvaluationRequest(
            against, request.models, request.annotators, similarity=similarity, wanted=metrics
        )
        gathered = gather(settings, asked, progress)
        sides, project = gathered.sides, gathered.project
        positives = located("the release", by_query, sides)
        runs = {
            model.name: best_items(model, sides, positives, request.depth, progress)
            for model in gathered.models
        }
    else:
        project = read_project(settings) if (settings.project / "mitl.toml").is_file() else None
        if project is None:
            sides = searched([], by_query, whole_split=False)
        else:
            sides = project.sides
            told = repr(str(request.release)), dataset_of(request.release)
            require_one_dataset(("this project", project.dataset_sha256), told)
        located("the release", by_query, sides)
    if project is None and (request.with_texts or request.with_media or request.objects):
        raise UsageError(
            "texts, files and whose caption is whose are the project's; run this in the project, or leave them out"
        )
    stated = manifest.get("card")
    card = stated if isinstance(stated, dict) else {}
    judged = judged_pairs(request.release, by_query)
    ways = tuple(
        _way(direction, judged[direction], sides, name) for direction, name in form.way_names.items()
    )
    # Loaders refuse a direction without a query, and with it the folder.
    ways = tuple(way for way in ways if way.queries) or ways
    every = (*sides.images.ids, *sides.captions.ids)
    return Content(
        str(manifest.get("name") or request.release.name),
        form,
        ways,
        _sides_of(form, project, request),
        id_kind(every) is IdKind.INTEGER,
        str(card.get("license") or ""),
        str(card.get("items_license") or ""),
        runs,
        _objects(request.objects, project) if project is not None and request.objects else None,
        read_references(request.release),
        tuple(dict.fromkeys(request.languages)) or ENGLISH,
    )


def _objects(files: Sequence[Path], project: Project) -> dict[str, dict[str, list[int]]]:
    """What `mitl evaluate --objects` scores by."""
    sides = project.sides
    owners = image_numbers(sides, CaptionTexts.of_project(project).image_of)
    task = plausible_task([read_image_objects(path) for path in files], sides, owners)
    return {
        side.modality: {
            item: np.flatnonzero(row).tolist()
            for item, row in zip(side.ids, task.objects[side.modality].vectors, strict=True)
        }
        for side in (sides.images, sides.captions)
    }


def _sides_of(
    form: SetForm, project: Project | None, request: ExportRequest
) -> tuple[SideContent, SideContent]:
    """What is asked for of both sides; a composed query has the file of its reference."""
    left, right = (SideContent(kinds) for kinds in form.parts)
    if project is None:
        return left, right
    images, captions = project.items.images, project.items.captions
    if request.with_texts:
        left = replace(left, texts={image.external_id: image.texts for image in images})
        right = replace(right, texts={caption.external_id: (caption.text,) for caption in captions})
    if request.with_media:
        paths = {image.id: image.path for image in images}
        references = {caption.external_id: caption.reference_id for caption in captions}
        left = replace(left, media={image.external_id: image.path for image in images})
        right = replace(
            right, media={name: paths.get(image) for name, image in references.items() if image is not None}
        )
    return left, right


def _way(direction: Direction, judged: Mapping[str, Mapping[str, int]], sides: Sides, name: str) -> Way:
    gallery = {*sides.gallery(direction).ids, *(item for items in judged.values() for item in items)}
    queries = sorted(judged, key=tie_key(id_kind(judged)))
    return Way(direction, tuple(queries), tuple(sorted(gallery, key=tie_key(id_kind(gallery)))), judged, name)


def _put(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Write the folder; returns whether it was not there with these files already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if holds(folder, files):
            return False
        raise ReleaseError(f"{str(folder)!r} is not empty, so it is left alone; choose another folder")
    place = folder.resolve()  # a link is no folder's place
    remove_dead_parts(place.parent)
    with whole_folder(place) as part:
        for name, content in files.items():
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as sink:
                sink.write(content)
                to_disk(sink)
    return True
