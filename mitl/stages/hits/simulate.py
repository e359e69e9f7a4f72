"""Scripted workers on the open HITs: truth and places come from the pipeline, all else goes over HTTP."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, NotRequired

from mitl.campaign.kinds.texts.answers import check_text
from mitl.crowd.context import choose_environment, named
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.crowd.populations import ListTruth, parse_population
from mitl.crowd.raters import LikenessTruth, PickTruth, WriteTruth
from mitl.crowd.scripted import ScriptedWork, ScriptedWorker, SimulationResult, give_back, run_workers
from mitl.crowd.truth import (
    GradedTruthOf,
    TextsOf,
    TruthOf,
    default_truth,
    graded_truth_source,
    require_known,
    text_source,
    truth_source,
)
from mitl.crowd.worker_session import Truths
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import collection as collection_store
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import rating_pages
from mitl.db.store.hits import StoredHit
from mitl.db.store.rounds import after_pages
from mitl.errors import UsageError
from mitl.progress import Progress, no_progress
from mitl.records import (
    CollectionRole,
    Comparison,
    Environment,
    HitItem,
    HitState,
    Label,
    StageResult,
    Table,
    several,
)
from mitl.records.collection import CollectionQuestion
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.records.similarity import SimilarityQuestion
from mitl.settings import Settings

_NOT_FOR_MONEY = "scripted workers do not work for real money; use --sandbox"


@printed_by("simulate")
class SimulateCounts(EnvironmentCounts):
    """What scripted workers did."""

    submitted: Annotated[int, "assignments answered"]
    workers: NotRequired[Annotated[int, "scripted workers that came"]]
    by_character: NotRequired[Annotated[dict[str, int], "assignments by character"]]


def simulate(
    settings: Settings,
    environment: Environment | None = None,
    *,
    population: str = "careful",
    truth: str | None = None,
    hits_per_worker: int = 10,
    max_hits: int | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Answer what is open on mitl's own crowd server as a population of scripted workers would.

    Each call invites new workers, whose answers depend on the seed, their name and the HIT alone. The workers of a call
    that was killed first return the HITs that they had accepted, which nobody else could take.

    Raises:
        UsageError: another endpoint or live money is meant, or the population or truth is unknown.
    """
    characters = parse_population(population)
    if truth is not None:
        require_known(truth)
    if environment is Environment.LIVE:
        raise UsageError(_NOT_FOR_MONEY)
    if settings.endpoint is not None:
        raise UsageError(
            f"scripted workers only work on mitl's own crowd server, not on {settings.endpoint}; "
            "leave the endpoint out"
        )
    work = _open_hits(settings, environment)
    if not work.missing:
        return _nothing_to_do(work.environment, work.harvest if work.hits else work.following)
    source = truth or default_truth(settings)
    truths = _Known(
        cache(partial(truth_source, settings, source)),
        cache(partial(graded_truth_source, settings, source)),
        cache(partial(text_source, settings, source)),
    )
    # One HIT is never given to one worker twice, so several assignments need several people.
    hits_per_worker = min(hits_per_worker, settings.max_hits_per_worker or hits_per_worker)
    count = max(-(-work.missing // hits_per_worker), *(hit.assignments for hit in work.hits.values()))
    played = characters.characters(count, seed=settings.seed + work.known_workers)
    names = [f"w{work.known_workers + number}" for number in range(1, count + 1)]
    with open_endpoint(settings, work.environment) as endpoint, _at_work(settings, endpoint) as joining:
        links = endpoint.invite(count, label="scripted workers")
        workers = [ScriptedWorker(*who) for who in zip(links, played, names, strict=True)]
        done = run_workers(
            workers,
            ScriptedWork(
                lambda hit_id: work.truths(hit_id, truths),
                seed=settings.seed,
                hits_per_worker=hits_per_worker,
                max_hits=max_hits,
                key_of=lambda hit_id: work.hits[hit_id].key,
                joining=joining,
            ),
            expected=min(work.missing, max_hits or work.missing),
            progress=progress,
        )
    return _result(work, workers, done)


@contextmanager
def _at_work(settings: Settings, endpoint: Endpoint) -> Iterator[Callable[[ScriptedWorker], None]]:
    """Keeps the links of those who join until the block ends well; who joined in a call that did not, gives back first.

    A file of links is locked by its call, so that one which can be locked is of a call that is over.
    """
    folder = settings.runs / "scripted-workers"
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # nobody may take a file for left that is about to be locked
        for path in sorted(folder.iterdir()):
            _follow_up(path, endpoint)
        lock = folder / secrets.token_hex(8)
        file = os.fdopen(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        os.close(handle)

    def keep(worker: ScriptedWorker) -> None:
        file.write(worker.link.removeprefix(endpoint.url) + "\n")
        file.flush()

    with file:
        yield keep
        lock.unlink()


def _follow_up(path: Path, endpoint: Endpoint) -> None:
    with path.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        # Whose line was cut had not joined yet.
        give_back([endpoint.url + line.strip() for line in file if line.endswith("\n")])
        path.unlink()


@dataclass(frozen=True, slots=True)
class _Known:
    """What is held to be true; read once it is asked for."""

    labels: Callable[[], TruthOf]
    """Of an image and a caption."""
    grades: Callable[[], GradedTruthOf]
    """Of any two items."""
    texts: Callable[[], TextsOf]
    """What may be written of images."""


@dataclass(frozen=True, slots=True)
class _OpenHits:
    """The posted HITs of an environment, with what stands on them by external id.

    HITs of a kind of campaign that the scripted workers do not know are left to people.
    """

    environment: Environment
    following: str
    """What to do where no HIT waits for a worker."""
    harvest: str
    """What to do where they were answered."""
    hits: Mapping[str, StoredHit]
    """By the id that the server gave."""
    missing: int
    """Submissions that are still to come."""
    known_workers: int
    items: Mapping[int, Sequence[HitItem]]
    comparisons: Mapping[int, Sequence[Comparison]]
    """Of HITs that ask for preferences; nothing for the others."""
    ratings: Mapping[int, Sequence[SimilarityQuestion]]
    """Of HITs that ask how like two items are; nothing for the others."""
    texts: Mapping[int, Sequence[CollectionQuestion]]
    """Of HITs that collect texts, or their reviews; nothing for the others."""
    images: Mapping[int, str]
    captions: Mapping[int, str]

    def truths(self, hit_id: str, known: _Known) -> Truths | None:
        """The truth at each place of a HIT; None for one that is not known here."""
        hit = self.hits.get(hit_id)
        if hit is None:
            return None
        if self.ratings[hit.id]:
            return self._likeness(self.ratings[hit.id], known.grades())
        if self.texts[hit.id]:
            return self._collected(self.texts[hit.id], known)
        if self.comparisons[hit.id]:
            return {asked.place: self._lists(asked, known.labels()) for asked in self.comparisons[hit.id]}
        return {
            item.place: known.labels()(self.images[item.pair.image_id], self.captions[item.pair.caption_id])
            for item in self.items[hit.id]
        }

    def _likeness(
        self, asked: Sequence[SimilarityQuestion], grades: GradedTruthOf
    ) -> dict[int, LikenessTruth]:
        task = asked[0].task
        names = {"image": self.images, "caption": self.captions}
        left, right = (names[side] for side in task.sides)
        pairs = [(left[item.left], right[item.right]) for item in asked]
        scores = grades(task, *(list(side) for side in zip(*pairs, strict=True)))
        return {
            item.place: LikenessTruth(score, task, " ".join(pair))
            for item, pair, score in zip(asked, pairs, scores, strict=True)
        }

    def _collected(self, asked: Sequence[CollectionQuestion], known: _Known) -> Truths:
        if asked[0].role is CollectionRole.WRITE:
            return {item.place: self._written(item, known.texts()) for item in asked}
        if asked[0].role is CollectionRole.PICK:
            return {
                item.place: PickTruth(
                    tuple(
                        known.labels()(self.images[image], self.captions[item.caption or 0]).label
                        for image in item.offered
                    )
                )
                for item in asked
            }
        return {
            item.place: known.texts().truth(self.images[item.image or 0], item.text)
            if item.caption is None
            else known.labels()(self.images[item.image or 0], self.captions[item.caption])
            for item in asked
        }

    def _written(self, item: CollectionQuestion, texts: TextsOf) -> WriteTruth:
        """What a careful worker may write, who has read the rules."""
        sentences = texts.sentences(self.images[item.image or 0])
        return WriteTruth(
            tuple(text for text in sentences if item.rules is None or not check_text(text, item.rules))
        )

    def _lists(self, asked: Comparison, truth_of_pair: TruthOf) -> ListTruth:
        query = asked.query_id

        def of(item: int) -> Label:
            image, caption = asked.direction.ordered(query, item)
            return truth_of_pair(self.images[image], self.captions[caption]).label

        return ListTruth(tuple(map(of, asked.left_items)), tuple(map(of, asked.right_items)))


def _open_hits(settings: Settings, environment: Environment | None) -> _OpenHits:
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
        if chosen is Environment.LIVE:
            raise UsageError(_NOT_FOR_MONEY)
        posted = hit_store.hits(session, chosen, (HitState.POSTED,))
        ids = [hit.id for hit in posted]
        items = hit_store.hit_items(session, ids)
        ratings = rating_pages.questions(session, ids)
        texts = collection_store.questions(session, ids)
        comparisons = comparison_store.comparisons(session, ids)
        asked: list[Mapping[int, Sequence[object]]] = [items, ratings, texts, comparisons]
        posted = [hit for hit in posted if any(questions[hit.id] for questions in asked)]
        stored = answer_store.stored_counts(session, chosen)
        dataset = item_store.dataset(session)
        return _OpenHits(
            environment=chosen,
            following=after_pages(session, chosen),
            harvest=f"mitl harvest{named(session, chosen)}",
            hits={hit.mturk_hit_id: hit for hit in posted if hit.mturk_hit_id is not None},
            missing=sum(max(hit.assignments - stored.get(hit.id, 0), 0) for hit in posted),
            known_workers=len({row.worker_id for row in answer_store.assignments(session, chosen)}),
            items=items,
            ratings=ratings,
            texts=texts,
            comparisons=comparisons,
            images={i.id: i.external_id for i in item_store.images(session, dataset.id, settings.project)},
            captions={c.id: c.external_id for c in item_store.captions(session, dataset.id)},
        )


def _result(work: _OpenHits, workers: Sequence[ScriptedWorker], done: SimulationResult) -> StageResult:
    if not done.submitted:
        return _nothing_to_do(work.environment, work.harvest)
    rows = tuple(
        (name, sum(worker.character == name for worker in workers), hits)
        for name, hits in sorted(done.by_character.items())
    )
    return StageResult(
        counts=SimulateCounts(
            environment=work.environment.value,
            submitted=done.submitted,
            workers=len(workers),
            by_character=dict(sorted(done.by_character.items())),
        ),
        tables=(Table("", ("character", "workers", "HITs"), rows),),
        lines=(f"{several(done.submitted, 'HIT')} answered; scripted workers: {len(workers):,}",),
        next=work.harvest,
    )


def _nothing_to_do(environment: Environment, following: str) -> StageResult:
    counts = SimulateCounts(environment=environment.value, submitted=0)
    return StageResult.nothing(f"no HIT on {environment} waits for a scripted worker", counts, following)
