"""Everything that one call of ``mitl evaluate`` scores: the images and captions, the tasks and the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mitl.datasets.cxc import RatedPairs, choose_split
from mitl.datasets.objects import read_image_objects
from mitl.errors import DatasetError, StoreError, UsageError
from mitl.metrics.crisscrossed import Task, image_positives, text_positives
from mitl.metrics.intervals import QueryGroups
from mitl.metrics.positives import Ids, Positives
from mitl.metrics.table import Asked, load_installed
from mitl.positives.folders import dataset_of, require_one_dataset
from mitl.positives.loading import read_original_images, read_references, read_release
from mitl.progress import Progress
from mitl.records import Direction
from mitl.records.similarity import Likeness
from mitl.settings import Settings
from mitl.stages.evaluating import admission
from mitl.stages.evaluating.baselines import (
    SENTENCES,
    BaselineInput,
    check_baselines,
    encoder_vectors,
    fitted_baseline,
)
from mitl.stages.evaluating.crisscrossed import (
    across_task,
    images_in_ratings,
    read_crisscrossed,
)
from mitl.stages.evaluating.figures import Scored
from mitl.stages.evaluating.model_files import RankingModel, RawModel, read_caption_vectors, read_model
from mitl.stages.evaluating.models import BOTH, Model, Sides, caption_groups, image_numbers
from mitl.stages.evaluating.positive_sets import (
    FOLDS,
    OFFICIAL_PREFIX,
    ByQuery,
    beyond_gallery,
    coco_folds,
    environment_of,
    is_official_split,
    located,
    official_by_query,
    official_names,
    searched,
)
from mitl.stages.evaluating.project import (
    CaptionTexts,
    Project,
    RankingNeed,
    annotator_models,
    read_project,
    read_texts,
)
from mitl.stages.evaluating.pseudo_task import PseudoLabelsTask, pseudo_task
from mitl.stages.evaluating.request import EvaluationRequest, NamedTask
from mitl.stages.evaluating.scoring import ScoredTask
from mitl.stages.evaluating.tasks import (
    GRADED_RELEASE,
    FoldsTask,
    PositivesTask,
    cxc_grades,
    plausible_task,
    release_grades,
)

PROJECT_ORIGINALS = "original"
RELEASE = "release"


@dataclass(slots=True, eq=False)
class Gathered:
    """What is scored on what."""

    sides: Sides
    project: Project | None
    texts: CaptionTexts | None = None
    """The captions' words, where they are at hand."""
    tasks: list[ScoredTask] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    computed: int = 0
    """Rankings that had to be computed."""
    of_all: bool = False
    """Whether all of the project's annotators are among the models."""
    rated: Mapping[Likeness, RatedPairs] = field(default_factory=dict)
    """CxC's scores, in the sides' numbers."""
    within: dict[Task, Positives] = field(default_factory=dict)
    """CxC's positives of text to text and of image to image."""
    pseudo_labels: PseudoLabelsTask | None = None
    environments: dict[str, str] = field(default_factory=dict)
    """Of the sets that come of a release: the environment whose answers it holds."""
    groups: QueryGroups | None = None
    """The captions of an image, which are hit or missed together."""
    release_groups: QueryGroups | None = None
    """The same as the release tells it; as ``groups`` where it tells nothing."""
    trained_on_release: dict[str, int] = field(default_factory=dict)
    """Model → how many of the release's judged pairs taught it."""
    warnings: list[str] = field(default_factory=list)

    def with_groups(self, row: Scored) -> Scored:
        """The same with the queries that are drawn together for its intervals."""
        if row.direction not in (Task.T2I, Task.T2T):
            return row
        of_release = row.positives in (RELEASE, GRADED_RELEASE)
        return replace(row, groups=self.release_groups if of_release else self.groups)


def gather(settings: Settings, request: EvaluationRequest, progress: Progress) -> Gathered:
    """Read the models and the sets, and fit them to the images and captions that are searched.

    Those are the project's, where there is one; else those of the file of captions; else the official test split where
    an official set, or CxC's ratings of it, are asked for; else what the models' files hold.

    Raises:
        UsageError: there is nothing to score, nothing to score it against, or what does not fit.
        MitlError: a file is missing, malformed or does not fit the others.
    """
    official = official_names(request.against.official)
    check_baselines(request.baselines)
    project = _project(settings, request)
    admission.refuse_empty(request, project, official)
    raw = [read_model(files, request.similarity) for files in request.models]
    folder = request.against.release
    release = None if folder is None else read_release(folder).by_query
    _require_one_dataset(request, project, raw)
    gathered = _searched(request, project, raw, release)
    comers = admission.comers_of(request, raw, project)
    admission.refuse_one_sided(request, comers)
    gathered.warnings += [str(fault) for _, fault in load_installed()]
    gathered.warnings += admission.left_out(request, comers)
    if BOTH in comers.values():
        _add_sets(gathered, official, release, request.wanted.asked)
    known = _images_known(gathered, request)
    _add_ratings(gathered, request, admission.doable_by(comers), known)
    inputs = BaselineInput(settings, gathered.sides, project, gathered.texts, progress)
    _add_other_tasks(gathered, request)
    if request.against.pseudo_labels:
        _add_pseudo_labels(gathered, request.against.label_embeddings, inputs)
        gathered.warnings += [
            f"{model.name} has rankings alone, so pseudo-labels are left out"
            for model in raw
            if isinstance(model, RankingModel)
        ]
    gathered.groups = gathered.release_groups = caption_groups(gathered.sides, known)
    if folder is not None:
        if told := read_original_images(folder):
            gathered.release_groups = caption_groups(gathered.sides, told)
        if environment := environment_of(folder):
            gathered.environments = dict.fromkeys((RELEASE, GRADED_RELEASE), environment)
    _warn_of_others(gathered, raw)
    gathered.models = [model.fitted(gathered.sides, request.directions) for model in raw]
    gathered.models += [fitted_baseline(name, inputs) for name in request.baselines]
    if project is not None:
        _add_annotators(gathered, project, settings, request, progress)
    if request.against.cxc is not None and admission.asked_tasks(request) & {NamedTask.T2T, NamedTask.I2I}:
        gathered.warnings += [
            f"{model.name} has no similarities of two captions or two images, so CxC's tasks t2t and i2i are "
            "left out; embeddings have them"
            for model in gathered.models
            if not model.within_sides
        ]
    return gathered


def _project(settings: Settings, request: EvaluationRequest) -> Project | None:
    has_project = (settings.project / "mitl.toml").is_file()
    if (request.models or request.baselines or request.captions) and not (has_project or request.annotators):
        return None
    try:
        return read_project(settings)
    except StoreError as error:
        if has_project or request.annotators:
            raise
        raise StoreError(
            f"{error}; outside a project give a model's files, such as --model NAME=IMAGES,CAPTIONS"
        ) from error


def _require_one_dataset(
    request: EvaluationRequest, project: Project | None, raw: Sequence[RawModel]
) -> None:
    """ReleaseError where the project, the release, the ratings and rankings are not of one data set."""
    sets: list[tuple[str, str | None]] = []
    if project is not None:
        sets.append(("this project", project.dataset_sha256))
    folders = [folder for folder in (request.against.release, request.against.cxc) if folder is not None]
    sets += [(repr(str(folder)), dataset_of(folder)) for folder in folders]
    files = [table for model in raw if isinstance(model, RankingModel) for table in model.tables.values()]
    require_one_dataset(*sets, *((repr(str(table.path)), table.dataset_sha256) for table in files))


def _searched(
    request: EvaluationRequest, project: Project | None, raw: Sequence[RawModel], release: ByQuery | None
) -> Gathered:
    """What is searched, and the captions' texts where they are at hand."""
    if project is not None:
        return Gathered(project.sides, project, CaptionTexts.of_project(project))
    folder = request.against.release
    references = {} if folder is None else read_references(folder)
    if request.captions is not None:
        texts = read_texts(request.captions)
        return Gathered(texts.sides.with_references(references), None, texts)
    sides = searched(raw, release, whole_split=is_official_split(request))
    return Gathered(sides.with_references(references), None)


def _add_sets(
    gathered: Gathered, official: Sequence[str], release: ByQuery | None, asked: Sequence[Asked]
) -> None:
    def add(name: str, by_query: ByQuery, *, inside: bool = False) -> None:
        positives = located(name, by_query, gathered.sides, inside=inside)
        if not any(len(table) for table in positives.values()):
            listed = name.removeprefix(OFFICIAL_PREFIX)
            gathered.warnings.append(
                f"the official set {listed!r} lists no item of this data set, so it was left out"
                if inside
                else f"{name} lists no query with a positive, so it was left out"
            )
        else:
            gathered.tasks.append(PositivesTask(name, positives, asked))
        if not inside and (word := beyond_gallery(name, positives, gathered.sides)):
            gathered.warnings.append(word)

    if gathered.project is not None:
        add(PROJECT_ORIGINALS, gathered.project.originals())
    if release is not None:
        add(RELEASE, release)
    for name in official:
        if name == FOLDS:
            _add_folds(gathered, asked)
        else:
            add(f"{OFFICIAL_PREFIX}{name}", official_by_query(name), inside=True)


def _add_folds(gathered: Gathered, asked: Sequence[Asked]) -> None:
    of_first = [one for one in asked if one.metric.positives == "first"]
    folds = coco_folds(gathered.sides) if of_first else None
    if folds is not None:
        gathered.tasks.append(FoldsTask(f"{OFFICIAL_PREFIX}{FOLDS}", folds, of_first))
    elif of_first:
        gathered.warnings.append(
            f"the official set {FOLDS!r} needs all 5,000 images and 25,000 captions of the test split, so it was left "
            "out"
        )
    else:
        gathered.warnings.append(
            f"the official set {FOLDS!r} has Recall@K and the median rank alone; neither is asked"
        )


def _add_ratings(
    gathered: Gathered, request: EvaluationRequest, doable: Set[NamedTask], known: Mapping[str, str]
) -> None:
    """The tasks of a folder of ratings, of those that are asked for and that some model can do.

    Args:
        known: caption → its image; in t2t the captions of one image match.

    Raises:
        UsageError: there is no model.
        DatasetError: the folder lacks what is asked for, or all that the models can be scored on.
    """
    folder = request.against.cxc
    if folder is None:
        return
    split = choose_split(folder, request.against.split)
    asked = admission.asked_tasks(request)
    kinds = {task.likeness for task in asked & doable}
    if not kinds:
        raise UsageError(
            "there is no model to score; give --annotator, its files, such as --model, or a --baseline"
        )
    gathered.rated, left_out = read_crisscrossed(folder, split, gathered.sides, kinds)
    for task in request.tasks:
        if task.needs_ratings and task.likeness in kinds and task.likeness not in gathered.rated:
            raise DatasetError(
                f"the task {task.value} needs {task.likeness.value}_{split}.csv, which {str(folder)!r} lacks or which "
                "rates nothing of these images and captions"
            )
    if left_out:
        gathered.warnings.append(
            f"{left_out:,} of the rated pairs are not among these images and captions: left out"
        )
    if NamedTask.T2T in asked and Likeness.STS in gathered.rated:
        captions = gathered.sides.captions.ids
        if unknown := sum(caption not in known for caption in captions):
            gathered.warnings.append(
                f"the images of {unknown:,} of {len(captions):,} captions are not known, so in t2t they match by "
                "ratings alone; --captions FILE names them"
            )
        of_images = gathered.sides.captions.numbers, caption_groups(gathered.sides, known).groups
        gathered.within[Task.T2T] = text_positives(gathered.rated[Likeness.STS], of_images=of_images)
    if NamedTask.I2I in asked and Likeness.SIS in gathered.rated:
        gathered.within[Task.I2I] = image_positives(gathered.rated[Likeness.SIS])
    if Likeness.SITS in gathered.rated:
        gathered.tasks.append(across_task(gathered.rated[Likeness.SITS], request.wanted.asked))


def _images_known(gathered: Gathered, request: EvaluationRequest) -> Mapping[str, str]:
    """Caption → its image: from the data set, from the official split or from the ratings, whichever is at hand."""
    against = request.against
    if gathered.texts is not None:
        return gathered.texts.image_of
    if is_official_split(request):
        return _official_images()
    if against.cxc is not None:
        return images_in_ratings(against.cxc, choose_split(against.cxc, against.split))
    return {}


def _image_numbers(gathered: Gathered) -> Ids:
    """(C,) the number of each caption's image, from the captions' texts or from the official test split."""
    told = gathered.texts.image_of if gathered.texts is not None else _official_images()
    return image_numbers(gathered.sides, told)


def _official_images() -> dict[str, str]:
    """Caption → its image in COCO's test split."""
    originals = official_by_query("original")[Direction.T2I]
    return {caption: images[0] for caption, images in originals.items()}


def _add_other_tasks(gathered: Gathered, request: EvaluationRequest) -> None:
    """Plausible matches and graded labels."""
    against = request.against
    if against.graded and against.cxc is not None:
        sits = gathered.rated.get(Likeness.SITS)
        if sits is None and against.release is None:
            raise DatasetError(
                f"{str(against.cxc)!r} rates no image and caption of these, so nothing is graded; leave --graded out"
            )
        if sits is not None:
            gathered.tasks.append(cxc_grades(sits))
    if against.graded and against.release is not None:
        gathered.tasks.append(release_grades(against.release, gathered.sides))
    if against.objects:
        files = [read_image_objects(path) for path in against.objects]
        gathered.tasks.append(plausible_task(files, gathered.sides, _image_numbers(gathered)))


def _add_pseudo_labels(gathered: Gathered, embeddings: Path | None, inputs: BaselineInput) -> None:
    """The labels from a file of the captions' embeddings, else from the sentence encoder."""
    vectors = (
        encoder_vectors(SENTENCES, inputs, "--pseudo-labels")
        if embeddings is None
        else read_caption_vectors(embeddings, gathered.sides.captions)
    )
    gathered.pseudo_labels = pseudo_task(vectors, gathered.sides, _image_numbers(gathered))
    gathered.tasks.append(gathered.pseudo_labels)


def _warn_of_others(gathered: Gathered, raw: Sequence[RawModel]) -> None:
    for model in raw:
        if isinstance(model, RankingModel):
            continue
        for side in map(gathered.sides.of, sorted(model.sides)):
            others = len(set(model.held(side.modality)) - set(side.ids))
            if others:
                gathered.warnings.append(
                    f"{model.name} holds {others:,} {side.plural} that are not among the {len(side):,} searched: they "
                    "are left out of the gallery"
                )


def _add_annotators(
    gathered: Gathered, project: Project, settings: Settings, request: EvaluationRequest, progress: Progress
) -> None:
    names = admission.scored_annotators(request, project)
    others = bool(request.models or request.baselines)
    gathered.of_all = set(names) >= set(project.annotators) and not others
    if not names and others:
        return
    needs: dict[Direction, RankingNeed] = dict.fromkeys(Direction, ((), 1))
    by_ranking = [task for task in gathered.tasks if not task.deep]
    for direction in request.directions if by_ranking else ():
        queries = np.unique(np.concatenate([task.queries(direction) for task in by_ranking]))
        needs[direction] = queries.tolist(), max(task.depth(direction) for task in by_ranking)
    if request.against.release is not None:
        gathered.trained_on_release = admission.trained_on_release(settings, names, request.against.release)
        gathered.warnings += admission.warnings_of(gathered.trained_on_release)
    deep = request.against.cxc is not None or any(task.deep for task in gathered.tasks)
    models, gathered.computed = annotator_models(
        settings, names, project, needs, progress, with_similarities=deep
    )
    gathered.models += models
    unknown = [model.name for model in models if model.similarities is None]
    if deep and unknown:
        gathered.warnings.append(
            f"{', '.join(unknown)}: rankings or single pairs are all that there is, so what needs similarities of all "
            f"images and captions is left out ({', '.join(task.name for task in gathered.tasks if task.deep)})"
        )
