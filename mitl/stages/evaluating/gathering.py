"""Everything that one call of ``mitl evaluate`` scores: the images and captions, the tasks and the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from mitl.datasets.objects import read_image_objects
from mitl.datasets.official import OfficialSet
from mitl.errors import MetricError, StoreError, UsageError
from mitl.metrics.official import Fold, split_folds
from mitl.metrics.positives import Ids, Positives, locate
from mitl.positives.folders import MANIFEST, read_manifest
from mitl.positives.loading import official_positives, read_positives_json, read_release
from mitl.progress import Progress
from mitl.records import Direction
from mitl.records.similarity import Likeness
from mitl.settings import Settings
from mitl.stages.evaluating.crisscrossed import Crisscrossed, across_task, read_crisscrossed, split_of
from mitl.stages.evaluating.model_files import RankingModel, RawModel, read_model
from mitl.stages.evaluating.models import Model, Side, Sides, strange_ids_hint
from mitl.stages.evaluating.project import Need, Project, ranked_models, read_project, similarities_of
from mitl.stages.evaluating.request import Against, Request, Wanted
from mitl.stages.evaluating.scoring import Task
from mitl.stages.evaluating.tasks import (
    GRADED_RELEASE,
    FoldsTask,
    PositivesTask,
    cxc_grades,
    plausible_task,
    release_grades,
)

OFFICIAL = ("original", "cxc", "eccv")
FOLDS = "original-1k"
"""The original positives in the five folds of 1,000 images and 5,000 captions."""
EVERY = "all"
OFFICIAL_CHOICES = ("original", FOLDS, "cxc", "eccv", EVERY)

ByQuery = Mapping[Direction, Mapping[str, Sequence[str]]]
"""Direction → query id → ids of its positives."""


def official_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """The official sets that ``--official`` asks for, each once.

    Raises:
        UsageError: there is no such set.
    """
    for name in wanted:
        if name not in OFFICIAL_CHOICES:
            known = ", ".join([*OFFICIAL, FOLDS, EVERY])
            raise UsageError(f"no official set called {name!r}; known: {known}")
    return OFFICIAL_CHOICES[:-1] if EVERY in wanted else tuple(dict.fromkeys(wanted))


def release_by_query(folder: Path) -> ByQuery:
    """The positives of a release, or of a folder that holds the two JSONs alone; ReleaseError where it is neither."""
    jsons = folder / "image_to_caption.json"
    if jsons.is_file() and not (folder / MANIFEST).is_file():
        return read_positives_json(folder).by_query
    return read_release(folder).by_query


def environment_of(folder: Path) -> str | None:
    """The environment whose answers a release holds; None where it does not say."""
    if not (folder / MANIFEST).is_file():
        return None
    named = read_manifest(folder).get("environment")
    return named if isinstance(named, str) else None


def official_by_query(name: str) -> ByQuery:
    """The positives of an official set; DatasetError where the package is not installed."""
    return official_positives(cast(OfficialSet, name)).by_query


def located(
    name: str, by_query: ByQuery, sides: Sides, *, inside: bool = False
) -> dict[Direction, Positives]:
    """The set in the sides' numbers; items that the gallery lacks still count in R, as in the official scores.

    Args:
        inside: leave out the queries that the sides lack.

    Raises:
        MetricError: the sides lack a query.
    """
    found = {}
    for direction in Direction:
        queries = sides.queries(direction).number_of
        table = by_query.get(direction, {})
        if inside:
            table = {query: items for query, items in table.items() if query in queries}
        _refuse_missing(name, table, sides.queries(direction))
        found[direction] = locate(table, queries, sides.gallery(direction).number_of).positives
    return found


def _refuse_missing(name: str, table: Mapping[str, Sequence[str]], side: Side) -> None:
    missing = [query for query in table if query not in side.number_of]
    if missing:
        raise MetricError(
            f"{len(missing):,} of the {len(table):,} {side.plural} that {name} lists as queries are not among the "
            f"{len(side):,} searched; first: {missing[0]!r}{strange_ids_hint(list(table), side.ids)}; give the model "
            "all of them"
        )


def searched(raw: Sequence[RawModel], release: ByQuery | None, *, whole_split: bool) -> Sides:
    """The official test split, else what the first model with embeddings or similarities holds, else what is named.

    Raises:
        MetricError: rankings name no image, or no caption, of the release.
    """
    if whole_split:
        originals = official_by_query("original")
        return Sides(Side.of("image", originals[Direction.I2T]), Side.of("caption", originals[Direction.T2I]))
    whole = [model for model in raw if not isinstance(model, RankingModel)]
    if whole:
        return Sides(Side.of("image", whole[0].held("image")), Side.of("caption", whole[0].held("caption")))
    return _union(raw, release or {})


def _union(raw: Sequence[RawModel], release: ByQuery) -> Sides:
    """What rankings and a release name together: nothing else says what is searched."""
    listed: dict[str, set[str]] = {"image": set(), "caption": set()}
    for direction, table in release.items():
        queries, items = ("image", "caption") if direction is Direction.I2T else ("caption", "image")
        listed[queries].update(table)
        listed[items].update(item for found in table.values() for item in found)
    sides = []
    for modality, ids in listed.items():
        named: set[str] = set(ids)
        for model in raw:
            held = model.held(modality)
            if ids and held and ids.isdisjoint(held):
                raise MetricError(
                    f"model {model.name!r} ranks none of the {len(ids):,} {modality}s of the release"
                    f"{strange_ids_hint(sorted(ids), held)}; rank them under the release's ids"
                )
            named.update(held)
        sides.append(Side.of(modality, named))
    return Sides(*sides)


def image_of(project: Project | None, sides: Sides) -> Ids:
    """(C,) the image's number of each caption of the sides, from the project or from the official test split.

    Raises:
        UsageError: there is no project, and a caption is none of the official ones.
    """
    if project is not None:
        return np.array([caption.image_id for caption in project.items.captions], np.int64)
    originals = official_by_query("original")[Direction.T2I]
    numbers = sides.images.number_of
    try:
        return np.array([numbers[originals[one][0]] for one in sides.captions.ids], np.int64)
    except KeyError as error:
        raise UsageError(
            f"whose caption {error.args[0]} is cannot be told outside a project; work in one, or score on COCO's test "
            "split"
        ) from error


PROJECT_ORIGINALS = "original"
RELEASE = "release"
OFFICIAL_PREFIX = "official-"


@dataclass(slots=True, eq=False)
class Gathered:
    """What is scored on what."""

    sides: Sides
    project: Project | None
    tasks: list[Task] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    computed: int = 0
    """Rankings that had to be computed."""
    of_all: bool = False
    """Whether all of the project's annotators are among the models."""
    crisscrossed: Crisscrossed | None = None
    image_of: Ids | None = None
    """(C,) the image of each caption, where a task needs it."""
    environments: dict[str, str] = field(default_factory=dict)
    """Of the sets that come of a release: the environment whose answers it holds."""
    warnings: list[str] = field(default_factory=list)


def gather(settings: Settings, request: Request, progress: Progress) -> Gathered:
    """Read the models and the sets, and fit them to the images and captions that are searched.

    Those are the project's, where there is one; else the official test split where an official set is asked for; else
    what the models' files hold.

    Raises:
        UsageError: there is nothing to score, nothing to score it against, or an official set that does not fit.
        MitlError: a file is missing, malformed or does not fit the others.
    """
    official = official_names(request.against.official)
    project = _project(settings, request)
    if project is not None and official and project.kind != "coco":
        raise UsageError(
            f"the official sets are COCO's, but this project holds {project.dataset!r} of kind {project.kind!r}; "
            "leave --official out, or score files outside the project"
        )
    against = request.against
    if project is None and not (official or against.release or against.cxc):
        raise UsageError(
            "there is nothing to score the models against; give --release DIR, --official all or --cxc FOLDER, or "
            "work in a project"
        )
    if against.graded and not (against.release or against.cxc):
        raise UsageError("--graded needs what is graded; give --release DIR or --cxc FOLDER beside it")
    raw = [read_model(files, request.similarity) for files in request.models]
    release = release_by_query(against.release) if against.release is not None else None
    whole_split = bool(official) or (against.cxc is not None and split_of(against.cxc) == "test")
    sides = project.sides if project is not None else searched(raw, release, whole_split=whole_split)
    found = Gathered(sides, project)
    _add_sets(found, official, release, request.wanted)
    _add_other_tasks(found, against, request.wanted)
    environment = None if against.release is None else environment_of(against.release)
    if environment is not None:
        found.environments = dict.fromkeys((RELEASE, GRADED_RELEASE), environment)
    _warn_of_others(found, raw)
    found.models = [model.fitted(sides, request.directions) for model in raw]
    if project is not None:
        _add_annotators(found, project, settings, request, progress)
    return found


def _project(settings: Settings, request: Request) -> Project | None:
    there = (settings.project / "mitl.toml").is_file()
    if request.models and not (there or request.annotators):
        return None
    try:
        return read_project(settings)
    except StoreError as error:
        if there or request.annotators:
            raise
        raise StoreError(
            f"{error}; outside a project give a model's files, such as --model NAME=IMAGES,CAPTIONS"
        ) from error


def _add_sets(found: Gathered, official: Sequence[str], release: ByQuery | None, wanted: Wanted) -> None:
    def add(name: str, by_query: ByQuery, *, inside: bool = False) -> None:
        positives = located(name, by_query, found.sides, inside=inside)
        if inside and not any(len(one) for one in positives.values()):
            listed = name.removeprefix(OFFICIAL_PREFIX)
            found.warnings.append(
                f"the official set {listed!r} lists no item of this data set, so it was left out"
            )
        else:
            found.tasks.append(PositivesTask(name, positives, wanted))

    if found.project is not None:
        add(PROJECT_ORIGINALS, found.project.originals())
    if release is not None:
        add(RELEASE, release)
    for name in official:
        if name == FOLDS:
            _add_folds(found, wanted)
        else:
            add(f"{OFFICIAL_PREFIX}{name}", official_by_query(name), inside=True)


def _add_other_tasks(found: Gathered, against: Against, wanted: Wanted) -> None:
    """CxC's retrieval tasks, plausible matches and graded labels."""
    if against.cxc is not None or against.objects:
        found.image_of = image_of(found.project, found.sides)
    if against.cxc is not None:
        known = found.crisscrossed = read_crisscrossed(against.cxc, found.sides)
        if known.left_out:
            found.warnings.append(
                f"{known.left_out:,} of CxC's rated pairs are not among these images and captions: left out"
            )
        found.tasks.append(across_task(known, wanted))
        if against.graded:
            found.tasks.append(cxc_grades(known.rated[Likeness.SITS]))
    if against.graded and against.release is not None:
        found.tasks.append(release_grades(against.release, found.sides))
    if against.objects:
        assert found.image_of is not None
        files = [read_image_objects(path) for path in against.objects]
        found.tasks.append(plausible_task(files, found.sides, found.image_of))


def _add_folds(found: Gathered, wanted: Wanted) -> None:
    if not wanted.of_first:
        found.warnings.append(
            f"the official set {FOLDS!r} has Recall@K and the median rank alone; neither is asked"
        )
        return
    folds = _folds(found.sides)
    if folds is None:
        found.warnings.append(
            f"the official set {FOLDS!r} needs all 5,000 images and 25,000 captions of the test split, so it was left "
            "out"
        )
        return
    found.tasks.append(FoldsTask(f"{OFFICIAL_PREFIX}{FOLDS}", folds, wanted))


def _folds(sides: Sides) -> Mapping[Direction, tuple[Fold, ...]] | None:
    """The five folds in the sides' numbers; None where an official item is missing."""
    from mitl.datasets.official import coco_test_ids

    captions = coco_test_ids()
    originals = official_by_query("original")
    if not (
        set(captions) <= set(sides.captions.ids) and set(originals[Direction.I2T]) <= set(sides.images.ids)
    ):
        return None
    known = located(FOLDS, originals, sides)
    numbers = np.array([sides.captions.number_of[one] for one in captions], np.int64)
    there, back = split_folds(numbers, known[Direction.T2I], known[Direction.I2T])
    return {Direction.I2T: there, Direction.T2I: back}


def _warn_of_others(found: Gathered, raw: Sequence[RawModel]) -> None:
    for model in raw:
        if isinstance(model, RankingModel):
            continue
        for side in (found.sides.images, found.sides.captions):
            others = len(set(model.held(side.modality)) - set(side.ids))
            if others:
                found.warnings.append(
                    f"{model.name} holds {others:,} {side.plural} that are not among the {len(side):,} searched: they "
                    "are left out of the gallery"
                )


def _add_annotators(
    found: Gathered, project: Project, settings: Settings, request: Request, progress: Progress
) -> None:
    names = tuple(request.annotators) or (() if request.models else project.annotators)
    found.of_all = set(names) >= set(project.annotators) and not request.models
    if not names and request.models:
        return
    by_ranking = [task for task in found.tasks if not task.deep]
    needs = {direction: _need(by_ranking, direction, request) for direction in Direction}
    models, found.computed = ranked_models(settings, names, project, needs, progress)
    deep = found.crisscrossed is not None or any(one.deep for one in found.tasks)
    similarities = similarities_of(settings, names, project, progress) if deep else {}
    found.models += [Model(one.name, one.rankings, similarities.get(one.name), cut=True) for one in models]
    others = [name for name in names if name not in similarities] if deep else []
    if others:
        found.warnings.append(
            f"{', '.join(others)}: rankings or single pairs are all that there is, so what needs similarities of all "
            f"images and captions is left out ({', '.join(one.name for one in found.tasks if one.deep)})"
        )


def _need(tasks: Sequence[Task], direction: Direction, request: Request) -> Need:
    if direction not in request.directions or not tasks:
        return Need((), 1)
    queries = np.unique(np.concatenate([task.queries(direction) for task in tasks]))
    return Need(queries.tolist(), max(task.depth(direction) for task in tasks))
