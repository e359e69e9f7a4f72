"""Which models are scored on which tasks, what of it cannot go together, and who learnt from the answers that score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mitl.errors import UsageError
from mitl.positives.folders import MANIFEST
from mitl.positives.loading import read_positives_json
from mitl.positives.sources import verified_pairs
from mitl.records import Direction, several
from mitl.settings import Settings
from mitl.stages.evaluating.baselines import BASELINES
from mitl.stages.evaluating.model_files import RawModel
from mitl.stages.evaluating.models import BOTH, Modality
from mitl.stages.evaluating.project import Project
from mitl.stages.evaluating.request import EVERY_TASK, EvaluationRequest, NamedTask
from mitl.stages.proposing.trained import with_trained

_PAIRS = frozenset[tuple[str, str]]


def judged_pairs(folder: Path) -> _PAIRS:
    """(image id, caption id) of the pairs that people judged for a release, matches or not.

    A folder of the two JSONs alone does not say who judged what; there all listed positives are taken.

    Raises:
        ReleaseError: a file is missing, changed or malformed.
    """
    if not (folder / MANIFEST).is_file():
        positives = read_positives_json(folder)
        return positives.pairs(Direction.I2T) | positives.pairs(Direction.T2I)
    verified = verified_pairs(folder)
    return frozenset() if verified is None else verified.judged


def trained_on_release(settings: Settings, names: Sequence[str], release: Path) -> dict[str, int]:
    """Annotator → how many of the release's judged pairs people answered to teach it; those with none are left out.

    Read are weights in our own format: of annotators that learnt here, and of those of ``mitl.toml``. Other weights do
    not say from what they learnt, and original pairs that taught without an answer do not count.

    Raises:
        AnnotatorError: one of the names was withdrawn, or a weights file is damaged.
        ReleaseError: a file of the release is missing, changed or malformed.
    """
    config = with_trained(settings, names).annotator_config
    files = {name: _weights(settings.project, config.get(name, {})) for name in names}
    taught = {name: _PAIRS().union(*map(_taught, paths)) for name, paths in files.items()}
    if not any(taught.values()):
        return {}
    judged = judged_pairs(release)
    counts = {name: len(pairs & judged) for name, pairs in taught.items()}
    return {name: count for name, count in counts.items() if count}


def warnings_of(found: Mapping[str, int]) -> list[str]:
    """A line for each model that was taught by pairs of the release that scores it."""
    return [
        f"{name} learnt from people's answers on {several(count, 'pair')} of this release, so its scores on the "
        "release say how well it remembers them; compare models that were not taught by them, or score it on a "
        "release of other queries"
        for name, count in found.items()
    ]


def _weights(project: Path, config: Mapping[str, object]) -> list[Path]:
    """Its weights in safetensors, of two that are averaged both; none where it has others or none."""
    named = config.get("towers", config.get("weights"))
    files = [
        project / Path(str(file)).expanduser() for file in (named if isinstance(named, list) else [named])
    ]
    return [file for file in files if file.suffix == ".safetensors" and file.is_file()]


def _taught(path: Path) -> _PAIRS:
    from annotators.training.files import taught_pairs_of  # torch

    pairs = taught_pairs_of(path)
    answered = pairs[pairs["answers"] > 0]
    return frozenset(zip(answered["image"], answered["caption"], strict=True))


def refuse_empty(request: EvaluationRequest, project: Project | None, official: Sequence[str]) -> None:
    """UsageError where nothing is to be scored, or against nothing, or what was named does not go together."""
    against = request.against
    if project is not None and official and project.kind != "coco":
        raise UsageError(
            f"the official sets are COCO's, but this project holds {project.dataset!r} of kind {project.kind!r}; "
            "leave --official out, or score files outside the project"
        )
    if project is not None and request.captions is not None:
        raise UsageError("the project holds its captions; leave --captions out, or work outside the project")
    if project is None and not (request.models or request.baselines):
        raise UsageError("there is no model to score; give its files, such as --model, or a --baseline")
    rated = next((task for task in request.tasks if task.needs_ratings), None)
    if rated is not None and against.cxc is None:
        raise UsageError(f"the task {rated.value} needs ratings; give --cxc FOLDER beside it")
    if project is None and not (official or against.release or against.cxc or against.pseudo_labels):
        raise UsageError(
            "there is nothing to score the models against; give --release DIR, --official all or --cxc FOLDER, or "
            "work in a project"
        )
    if against.fair and against.release is None:
        raise UsageError(
            "--fair reads the audit of a release; give --release DIR, one that was built when its audit was complete"
        )
    if against.graded and not (against.release or against.cxc):
        raise UsageError("--graded needs what is graded; give --release DIR or --cxc FOLDER beside it")
    if project is None and request.baselines and request.captions is None:
        raise UsageError(
            f"the baseline {request.baselines[0]} reads a project's items, or the words of captions; work in a "
            "project, or give --captions FILE with caption_id, image_id and text"
        )
    if against.split is not None and against.cxc is None:
        raise UsageError("--split is one of a folder of ratings; give --cxc FOLDER beside it")
    if against.label_embeddings is not None and not against.pseudo_labels:
        raise UsageError("--label-embeddings are what --pseudo-labels are made from; give both, or neither")


Comers = Mapping[str, frozenset[Modality]]
"""The models that will be scored, by name: the sides that each knows."""


def comers_of(request: EvaluationRequest, raw: Sequence[RawModel], project: Project | None) -> Comers:
    """All that will be scored: models in files, built-in ones, and the project's annotators."""
    comers = {model.name: model.sides for model in raw}
    comers |= {name: frozenset({BASELINES[name]}) for name in request.baselines}
    return comers | dict.fromkeys(() if project is None else scored_annotators(request, project), BOTH)


def scored_annotators(request: EvaluationRequest, project: Project) -> tuple[str, ...]:
    """The project's annotators that are scored."""
    others = request.models or request.baselines
    return tuple(request.annotators) or (() if others else project.annotators)


def refuse_one_sided(request: EvaluationRequest, comers: Comers) -> None:
    """UsageError where something with two sides is asked for by name, or nothing else is, and no model has both."""
    named = list(request.tasks)
    if not named and len(request.directions) == 1:
        named = [NamedTask(request.directions[0].value)]
    if not comers:
        return
    name, sides = next(iter(comers.items()))
    undoable = next((task for task in named if task not in doable_by(comers)), None)
    if undoable is not None:
        needed = "images and captions" if undoable.sides == BOTH else f"{next(iter(undoable.sides))}s"
        raise UsageError(
            f"the task {undoable.value} compares {needed}, but {name} holds {_alone(sides)}; give embeddings of "
            f"{'both sides' if undoable.sides == BOTH else needed}, or ask for {_doable(sides)}"
        )
    if BOTH in comers.values():
        return
    against = request.against
    options = {
        "--release": against.release,
        "--official": against.official,
        "--objects": against.objects,
        "--graded": against.graded,
        "--pseudo-labels": against.pseudo_labels,
    }
    option = next((option for option, asked in options.items() if asked), None)
    if option is not None:
        raise UsageError(
            f"{option} compares images with captions, but {name} holds {_alone(sides)}; give embeddings of both sides, "
            f"or --cxc FOLDER for {_doable(sides)}"
        )
    if against.cxc is None:
        raise UsageError(
            f"{name} holds {_alone(sides)}, which can be scored on {_doable(sides)}; give --cxc FOLDER"
        )


def doable_by(comers: Comers) -> set[NamedTask]:
    """The tasks that some model can do."""
    return {task for task in NamedTask if any(task.sides <= sides for sides in comers.values())}


def _alone(sides: frozenset[Modality]) -> str:
    """How a message calls what a model of one modality holds."""
    return f"{next(iter(sides))}s alone"


def _doable(sides: frozenset[Modality]) -> str:
    """The tasks that a model of these sides can do."""
    return ", ".join(task.value for task in NamedTask if task.sides <= sides)


def asked_tasks(request: EvaluationRequest) -> frozenset[NamedTask]:
    """The tasks that are asked for: those named, else all but those that a single direction leaves out."""
    if request.tasks:
        return frozenset(request.tasks)
    if len(request.directions) == len(Direction):
        return EVERY_TASK
    return EVERY_TASK - {NamedTask.T2T, NamedTask.I2I}


def left_out(request: EvaluationRequest, comers: Comers) -> Iterator[str]:
    """What is not scored because of a direction or of the sides that a model lacks, a sentence each."""
    tasks = asked_tasks(request)
    if request.against.cxc is not None and not request.tasks and len(request.directions) < len(Direction):
        yield (
            f"CxC's tasks t2t and i2i have no direction {request.directions[0]}, so they are left out; without "
            "--direction they are scored"
        )
    for name, sides in comers.items():
        missing = [task.value for task in NamedTask if task in tasks and not task.sides <= sides]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield f"{name} holds {_alone(sides)}, so {', '.join(missing)} {verb} left out"
