"""`mitl train`: an annotator learns from the answers so far, and the project knows it from then on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pandas as pd

from annotators import registry
from annotators.base import file_sha256
from annotators.catalog import BEGINNERS
from annotators.training.recipe import LabelKind, Recipe
from mitl.core.arrays import contains, unpack_ids
from mitl.core.formats import csv_bytes
from mitl.core.whole_files import one_clear_line, whole_file
from mitl.crowd.context import Context, open_context
from mitl.db.store import rounds
from mitl.db.store.rounds import RoundRow, TrainedRow
from mitl.errors import TrainingError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table, several
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.collecting.show import collected
from mitl.stages.proposing.computing import split_scope
from mitl.stages.proposing.ranking import SearchedItems, read_items
from mitl.stages.proposing.trained import FOLDER, with_trained
from mitl.stages.training.gathering import no_lesson, teaching, written


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """Who learns, and how."""

    names: Sequence[str]
    """Annotators from whose weights it starts, one training each."""
    recipe: Recipe = field(default_factory=Recipe)
    name: str | None = None
    """Of what comes out, where one learns; by default the base's with ``-r`` and the round, or ``-tuned``."""
    device: str | None = None
    """Goes before that of the annotator's settings."""
    round: RoundRow | None = None
    """The round that it belongs to."""
    restart: bool = False
    """Whether a half-done training of other answers, weights or options gives way, or is refused."""

    def named(self, base: str) -> str:
        """What the annotator that learns from this base will be called."""
        suffix = "tuned" if self.round is None else f"r{self.round.number}"
        return self.name or f"{base}-{suffix}"


@printed_by("train")
class TrainCounts(TypedDict):
    """What training counts."""

    judged: Annotated[int, "pairs with usable answers in asked roles"]
    originals: Annotated[int, "original pairs that nobody was asked about"]
    collected: Annotated[int, "pairs that people wrote or picked, among the originals"]
    trained: Annotated[
        dict[str, dict[str, Any]],
        "annotator → base, whether that had its initial weights, steps done, best step, mAP@R of held-out queries "
        "before and after, whether it stopped early",
    ]


@printed_by("train", key="paths")
class TrainPaths(TypedDict):
    """Where the weights and the curves are."""

    trained: Annotated[str, "folder of NAME.safetensors and NAME.csv"]


def train(
    settings: Settings,
    request: TrainRequest,
    environment: Environment | None = None,
    *,
    progress: Progress = no_progress,
) -> StageResult:
    """Train each named annotator on originals and people's answers; one that is trained so already is left alone.

    Answers of audits, and on pairs drawn to bound machine labels, teach nothing. A killed training goes on. It starts
    from the weights of the annotator that is named, whatever has learnt from it before: from the initial ones by the
    base's name, from trained ones by the name of what learnt.

    Raises:
        TrainingError: too few answers, an annotator that cannot learn, a name that is taken, a checkpoint of another
            training, a card that is too small, an unknown loss.
        AnnotatorError: an unknown annotator, or what it needs is missing.
    """
    check(request)
    with open_context(settings, environment, progress=progress) as context:
        texts = collected(context)
        lesson = teaching(context, no_lesson(context), texts)
        _, items = read_items(context.session, settings)
        context.session.rollback()
        items = replace(items, captions=[*items.captions, *written(texts, items.captions)])
        work = _Work(context, with_trained(settings, request.names), request, lesson, texts, items)
        done = {request.named(base): work.one(base) for base in dict.fromkeys(request.names)}
    return _result(settings, done, work)


def check(request: TrainRequest) -> None:
    """Refuse what no project can train.

    Raises:
        TrainingError: nobody is named, one name for several, a name that none can have, an unknown loss.
        AnnotatorError: torch is not installed.
    """
    if not request.names:
        raise TrainingError(
            "no annotator is named; give the name of one or several, as `mitl train clip-mini`"
        )
    if request.name is not None and len(request.names) > 1:
        raise TrainingError(
            f"--name is {request.name!r}, but {len(request.names)} annotators learn; train one by one"
        )
    if request.name is not None and not registry.NAME.fullmatch(request.name):
        raise TrainingError(
            f"an annotator cannot be called {request.name!r}; use letters, digits, '.', '_' and '-'"
        )
    with registry.naming_extras(request.names[0]):
        from annotators.training.losses import loss_of
    loss_of(request.recipe.loss)


@dataclass(frozen=True, slots=True)
class _Work:
    """What all trainings of one call share."""

    context: Context
    settings: Settings
    request: TrainRequest
    lesson: pd.DataFrame
    texts: pd.DataFrame
    """``COLLECTED``."""
    items: SearchedItems
    """What people wrote stands behind the captions."""

    @property
    def answers(self) -> str:
        """Hash of the pairs that teach, and of what people wrote."""
        columns = [self.lesson[name].to_numpy().tobytes() for name in self.lesson]
        return hashlib.sha256(b"".join([*columns, *map(str.encode, self.texts["text"])])).hexdigest()

    @property
    def collected(self) -> int:
        """Pairs that people wrote or picked and that teach."""
        taught = self.lesson["pair"].to_numpy()
        return int(contains(taught, self.texts["pair"].to_numpy()).sum())

    def one(self, base: str) -> dict[str, Any]:
        """Train one; what there is to say of it."""
        from annotators.training.learners import load

        name, recipe = self.request.named(base), self.request.recipe
        config = split_scope(base, self.settings.annotator_config.get(base, {}))[0]
        learner = load(base, config, folder=self.settings.project, device=self.request.device)
        said = {**recipe.as_json(), "answers_sha256": self.answers}
        path = self.settings.project / FOLDER / f"{name}.safetensors"
        initial, teachers = self._before(base)
        if (trained := self._trained(name)) is not None:
            outcome = self._known(trained, path, learner.fingerprint, said)
            return {"base": base, "status": "nothing_to_do", "initial": initial, **outcome}
        if name in self.settings.annotator_config or name in registry.names() or name in BEGINNERS:
            raise TrainingError(f"there is an annotator {name!r} already; give another --name")
        outcome = self._train(learner, name, base, path, teachers)
        learnt = outcome["best_step"] > 0
        row = TrainedRow(
            0,
            name,
            None if self.request.round is None else self.request.round.id,
            base,
            learner.fingerprint,
            f"{FOLDER}/{name}.safetensors",
            file_sha256(path),
            {**said, "collected": self.collected if learnt else 0, "outcome": outcome},
            self.context.now(),
            None,
        )
        rounds.add_trained(self.context.session, row, self.lesson if learnt else self.lesson.head(0))
        self.context.session.commit()
        path.with_suffix(".checkpoint").unlink(missing_ok=True)
        return {"base": base, "status": "done", "initial": initial, **outcome}

    def _trained(self, name: str) -> TrainedRow | None:
        rows = {row.name: row for row in rounds.trained(self.context.session, withdrawn=True)}
        self.context.session.rollback()
        return rows.get(name)

    def _known(self, row: TrainedRow, path: Path, mark: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """Of one of this name; TrainingError where it is not the same."""
        recipe = dict(row.recipe)
        outcome: dict[str, Any] = recipe.pop("outcome", {})
        options = (set(recipe) | set(said)) - {"answers_sha256", "collected"}
        if row.withdrawn_at is not None:
            raise TrainingError(
                f"{row.name!r} was withdrawn when its round was rolled back; give another --name"
            )
        other = [
            what
            for what, same in (
                ("weights", row.base_fingerprint == mark),
                ("answers", recipe.get("answers_sha256") == said["answers_sha256"]),
                ("options", all(recipe.get(key) == said.get(key) for key in options)),
            )
            if not same
        ]
        if other:
            raise TrainingError(
                f"there is an annotator {row.name!r} already, which learnt from other {' and '.join(other)}; "
                "give another --name"
            )
        if not path.is_file() or file_sha256(path) != row.weights_sha256:
            raise TrainingError(
                f"the weights of {row.name!r} are gone from {str(path)!r}, or are others; restore the file, or train "
                "under another --name"
            )
        return outcome

    def _train(
        self, learner: Any, name: str, base: str, path: Path, teachers: pd.DataFrame | None
    ) -> dict[str, Any]:
        from annotators.training.files import joined_pairs
        from annotators.training.reading import Reader
        from annotators.training.taught import Lessons
        from annotators.training.training import COLUMNS, Resumable
        from annotators.training.training import train as run

        recipe, items = self.request.recipe, self.items
        vectors, encoder = self._vectors() if recipe.labels is LabelKind.PSEUDO else (None, "")
        lessons = Lessons.of(self.lesson, items.images, items.captions, vectors)
        kept = Resumable(
            path.with_suffix(".checkpoint"), learner.fingerprint, self.answers, encoder, self.request.restart
        )

        def told(rows: Sequence[Any]) -> None:
            with whole_file(path.with_suffix(".csv")) as sink:
                sink.write(csv_bytes([COLUMNS, *(astuple(row) for row in rows)]))

        with (
            one_clear_line(path, "the checkpoint of the last look is kept"),
            self.context.progress(f"train {name}", total=recipe.steps) as advance,
        ):
            reader = Reader(learner, items.images, items.captions)
            done = run(learner, lessons, recipe, reader, kept=kept, advance=advance, told=told)
            # Weights from before the first step are the base's, and nothing of this training taught them.
            lesson = self.lesson if done.best.step else self.lesson.head(0)
            said = {
                "name": name,
                "base": base,
                "base_fingerprint": learner.fingerprint,
                "round": None if self.request.round is None else self.request.round.number,
                "answers_sha256": self.answers,
                "collected": self.collected if done.best.step else 0,
                "recipe": recipe.as_json(),
                "step": done.best.step,
            }
            if self._trained(name) is not None:
                raise TrainingError(
                    f"another training has made {name!r} meanwhile, and its weights stay; give another --name"
                )
            taught = self._taught(lesson)
            learner.save(path, said, taught if teachers is None else joined_pairs(taught, teachers))
        return {
            "steps": done.rows[-1].step,
            "best_step": done.best.step,
            "before": done.rows[0].map_at_r,
            "after": done.best.map_at_r,
            "stopped": done.stopped,
        }

    def _vectors(self) -> tuple[Any, str]:
        """Unit vectors of captions by the best encoder that is installed, and its fingerprint; None without one."""
        from annotators.item_encoders import build_encoder, default_encoders, item_vectors

        for name in default_encoders("caption", are_scenes=False):
            encoder = build_encoder(name, "caption", {}, self.settings.project)
            return item_vectors(name, encoder.encode_captions(self.items.captions)), encoder.fingerprint
        return None, ""

    def _taught(self, lesson: pd.DataFrame) -> pd.DataFrame:
        """``TAUGHT_PAIRS`` of this lesson."""
        left, right = unpack_ids(lesson["pair"].to_numpy())
        images = {item.id: item.external_id for item in self.items.images}
        captions = {item.id: item.external_id for item in self.items.captions}
        return pd.DataFrame(
            {
                "image": [images[id_] for id_ in left.tolist()],
                "caption": [captions[id_] for id_ in right.tolist()],
                "answers": lesson["n"].to_numpy(),
            }
        )

    def _before(self, base: str) -> tuple[bool, pd.DataFrame | None]:
        """Whether its weights are not of a training of ours, and ``TAUGHT_PAIRS`` of a file in our own form."""
        from annotators.training.files import taught_pairs_of, training_of

        config = self.settings.annotator_config.get(base, {})
        named = config.get("towers", config.get("weights"))
        if not isinstance(named, str) or not named.endswith(".safetensors"):
            return True, None
        weights = self.settings.project / Path(named).expanduser()
        return not training_of(weights), taught_pairs_of(weights)


def _result(settings: Settings, done: Mapping[str, dict[str, Any]], work: _Work) -> StageResult:
    rows = tuple(
        (
            name,
            f"{one['base']}, {'initial' if one['initial'] else 'trained'} weights",
            *(one[key] for key in ("steps", "best_step", "before", "after")),
        )
        for name, one in done.items()
    )
    judged = int((work.lesson["n"] > 0).sum())
    originals = len(work.lesson) - judged
    collected = f", {several(work.collected, 'collected one')} among them" if work.collected else ""
    nothing = all(row["status"] == "nothing_to_do" for row in done.values())
    worse = [name for name, row in done.items() if row["best_step"] == 0]
    return StageResult(
        status="nothing_to_do" if nothing else "done",
        counts=TrainCounts(
            judged=judged,
            originals=originals,
            collected=work.collected,
            trained=json.loads(json.dumps(done)),
        ),
        paths=TrainPaths(trained=str(settings.project / FOLDER)),
        warnings=tuple(
            f"{name} ranks held-out queries no better at any step, so it has the weights that it started from"
            for name in worse
        ),
        tables=(
            Table(
                f"taught by {judged:,} judged pairs and {originals:,} originals{collected}; mAP@R of held-out queries",
                ("annotator", "from", "steps", "best", "before", "after"),
                rows,
            ),
        ),
        lines=("nothing to do: the same was trained before",) if nothing else (),
        next=f"mitl propose {' '.join(f'--annotator {name}' for name in done)}",
    )
