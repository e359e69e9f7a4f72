"""Everything that one call of ``mitl evaluate`` scores: the images and captions, the tasks and the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mitl.datasets.crisscrossed import Likeness
from mitl.datasets.objects import read_image_objects
from mitl.errors import StoreError, UsageError
from mitl.metrics.official import Fold, split_folds
from mitl.metrics.positives import Ids
from mitl.progress import Progress
from mitl.records import Direction
from mitl.settings import Settings
from mitl.stages.evaluating.crisscrossed import Crisscrossed, across_task, read_crisscrossed, split_of
from mitl.stages.evaluating.graded import GRADED_RELEASE, cxc_grades, release_grades
from mitl.stages.evaluating.model_files import RankingModel, RawModel, read_model
from mitl.stages.evaluating.models import Model, Sides
from mitl.stages.evaluating.plausible import plausible_task
from mitl.stages.evaluating.project import Need, Project, ranked_models, read_project, similarities_of
from mitl.stages.evaluating.request import Against, Request, Wanted
from mitl.stages.evaluating.scoring import FoldsTask, PositivesTask, Task
from mitl.stages.evaluating.sets import (
    FOLDS,
    ByQuery,
    PositiveSet,
    environment_of,
    image_of,
    located,
    official_by_query,
    official_names,
    release_by_query,
    searched,
)

PROJECT_ORIGINALS = "original"
RELEASE = "release"


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
    if found.project is not None:
        originals = located(PROJECT_ORIGINALS, found.project.originals(), found.sides)
        found.tasks.append(_task(originals, wanted))
    if release is not None:
        found.tasks.append(_task(located(RELEASE, release, found.sides), wanted))
    for name in official:
        if name == FOLDS:
            _add_folds(found, wanted)
            continue
        one = located(f"official-{name}", official_by_query(name), found.sides, inside=True)
        if one.empty:
            found.warnings.append(
                f"the official set {name!r} lists no item of this data set, so it was left out"
            )
        else:
            found.tasks.append(_task(one, wanted))


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


def _task(one: PositiveSet, wanted: Wanted) -> PositivesTask:
    return PositivesTask(one.name, one.by_direction, wanted)


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
    found.tasks.append(FoldsTask(f"official-{FOLDS}", folds, wanted))


def _folds(sides: Sides) -> Mapping[Direction, tuple[Fold, ...]] | None:
    """The five folds in the sides' numbers; None where an official item is missing."""
    from mitl.datasets.official import coco_test_ids

    captions = coco_test_ids()
    originals = official_by_query("original")
    if not (
        set(captions) <= set(sides.captions.ids) and set(originals[Direction.I2T]) <= set(sides.images.ids)
    ):
        return None
    known = located(FOLDS, originals, sides).by_direction
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
