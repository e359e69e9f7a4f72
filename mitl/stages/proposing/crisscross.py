"""Sampling pairs to be rated for their likeness, in CxC's two phases: within a side, then across.

Phase 1 depends on encoders alone. What it sampled is kept in ``runs/crisscross`` under a hash of all that decides it,
so that a run that was killed, or asked for again, neither encodes nor searches twice. Phase 2 depends on what people
said of phase 1 and is made from the database each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import pandas as pd
from sqlalchemy.orm import Session

from annotators.base import Modality
from mitl.crowd.context import choose_environment
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import similarity as similarity_store
from mitl.db.store.items import DatasetRow
from mitl.errors import ProposalError, UsageError
from mitl.judgements.similarity import ENOUGH
from mitl.progress import Progress, no_progress
from mitl.proposals.crisscross import (
    NEIGHBOURS,
    RATED,
    CaptionGroups,
    caption_pairs,
    co_caption_pairs,
    cross_candidates,
    image_pairs,
    joined,
    original_pairs,
)
from mitl.records import Decision, Environment, StageResult
from mitl.records.frames import frame
from mitl.records.results import several
from mitl.records.similarity import METHODS, SamplingMethod
from mitl.retrieval.engines import LocalEngine
from mitl.retrieval.products import Backend
from mitl.settings import Settings
from mitl.stages.proposing.computing import ComputeContext
from mitl.stages.proposing.crisscross_counts import (
    COCO_CAPTIONS,
    COCO_IMAGES,
    CXC_IMAGE_PAIRS,
    CrisscrossCounts,
    encoder_counts,
    encoders_table,
    method_counts,
    methods_table,
)
from mitl.stages.proposing.crisscross_samples import (
    KeptSamples,
    Ratings,
    SideEncoders,
    images_by_captions,
    images_by_pictures,
    new_rows,
    side_encoders,
)
from mitl.stages.proposing.ranking import SearchedItems, read_items

VERSION = 1
"""Raised when the same configuration samples other pairs, so that kept ones are not taken for them."""
CANDIDATES_AN_IMAGE = 4
"""Captions that each image is compared with in phase 2 beside its own: CxC has 19,722 and 19,833 for 5,000 images."""
RATE = "mitl rate publish --task {task} --{environment}"
NEAREST_FIRST = (SamplingMethod.I2I_CSIM, SamplingMethod.C2C_ISIM)
"""What phase 2 follows from; co-captions lead to original pairs only."""


@dataclass(frozen=True, slots=True)
class CrisscrossOptions:
    """What was asked for; None or empty where nothing was said."""

    phase: int | None = None
    text_encoders: tuple[str, ...] = ()
    image_encoders: tuple[str, ...] = ()
    neighbours: int | None = None
    candidates: int | None = None
    min_ratings: int | None = None
    environment: Environment | None = None
    backend: str = "auto"

    @property
    def of_phase_1(self) -> tuple[str, ...]:
        """The options given that only phase 1 knows."""
        return self._given("text_encoders", "image_encoders", "neighbours")

    @property
    def of_phase_2(self) -> tuple[str, ...]:
        """The options given that only phase 2 knows."""
        return self._given("candidates", "min_ratings", "environment")

    def _given(self, *names: str) -> tuple[str, ...]:
        spelled = {"environment": f"--{self.environment}"}
        return tuple(
            spelled.get(name, f"--{name.removesuffix('s') if 'encoders' in name else name}".replace("_", "-"))
            for name in names
            if getattr(self, name) not in (None, ())
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Project:
    """What both phases start from."""

    settings: Settings
    dataset: DatasetRow
    items: SearchedItems
    groups: CaptionGroups
    samples: pd.DataFrame
    """``SAMPLES`` that are stored."""

    @classmethod
    def read(cls, session: Session, settings: Settings) -> _Project:
        dataset, items = read_items(session, settings)
        if not items.images or not items.captions:
            raise ProposalError(
                f"the data set has {len(items.images):,} images and {len(items.captions):,} captions; the scheme "
                "crisscross needs images with captions"
            )
        groups = CaptionGroups.of(
            [image.id for image in items.images],
            [caption.id for caption in items.captions],
            [caption.image_id for caption in items.captions],
        )
        return cls(settings, dataset, items, groups, similarity_store.samples(session))

    def of(self, *methods: SamplingMethod) -> pd.DataFrame:
        """What these ways of sampling brought."""
        return self.samples[self.samples["method"].isin([METHODS.index(method) for method in methods])]

    @property
    def has_phase_1(self) -> bool:
        """Whether anything of phase 1 is stored; it is stored all at once."""
        return bool(len(self.of(*(method for method in METHODS if method.phase == 1))))


def crisscross(
    settings: Settings, options: CrisscrossOptions, *, progress: Progress = no_progress
) -> StageResult:
    """Sample the pairs of one phase and store what is new; phase 1 first, then, once it is rated, phase 2.

    Raises:
        UsageError: an option of one phase with the other.
        AnnotatorError: an encoder is unknown, or what it needs is missing.
        ProposalError: phase 2 is asked for before phase 1 is rated, or there is nothing to compare.
    """
    with open_database(settings.db_url, read_only=True) as session:
        project = _Project.read(session, settings)
    phase = _phase(options, project)
    if phase == 1:
        return _within(project, options, progress)
    with open_database(settings.db_url, read_only=True) as session:
        environment = choose_environment(session, options.environment)
        waits = Decision.QUEUED in answer_store.decision_counts(session, environment)
        ratings = Ratings.of(
            similarity_store.ratings(session, environment),
            project.of(*NEAREST_FIRST),
            ENOUGH if options.min_ratings is None else options.min_ratings,
        )
    if ratings.missing:
        is_asked = options.phase == 2 or options.of_phase_2
        return _too_early(project, ratings, environment, is_asked=bool(is_asked), waits=waits)
    return _across(project, options, ratings)


def _phase(options: CrisscrossOptions, project: _Project) -> int:
    """The phase that was asked for or is meant; UsageError where options of both are given."""
    if options.of_phase_1 and options.of_phase_2:
        raise UsageError(
            f"{options.of_phase_1[0]} is for phase 1 and {options.of_phase_2[0]} for phase 2; give the options of one"
        )
    for phase, strange in ((1, options.of_phase_2), (2, options.of_phase_1)):
        if options.phase == phase and strange:
            raise UsageError(
                f"{strange[0]} is for phase {3 - phase}; leave it out, or leave out --phase {phase}"
            )
    meant = 1 if options.of_phase_1 else 2 if options.of_phase_2 or project.has_phase_1 else 1
    phase = options.phase or meant
    if phase == 2 and not project.has_phase_1:
        raise ProposalError(
            "phase 2 follows from the ratings of phase 1, which is not even sampled; run "
            "`mitl propose --scheme crisscross --phase 1` first"
        )
    return phase


def _within(project: _Project, options: CrisscrossOptions, progress: Progress) -> StageResult:
    """Phase 1: image pairs, caption pairs and co-captions."""
    settings, items = project.settings, project.items
    compute = ComputeContext.of(settings, LocalEngine(cast(Backend, options.backend)), progress)
    are_scenes = project.dataset.kind == "scenes"
    choose = partial(side_encoders, settings, items, compute, are_scenes=are_scenes)
    texts, images = choose("caption", options.text_encoders), choose("image", options.image_encoders)
    neighbours = NEIGHBOURS if options.neighbours is None else options.neighbours
    config = {
        "version": VERSION,
        "content": project.dataset.content_sha256,
        "texts": [(run.name, run.mark()) for run in texts.runs],
        "images": [(run.name, run.mark()) for run in images.runs],
        "neighbours": neighbours,
        "seed": settings.seed,
    }
    kept = KeptSamples.of(settings, config)
    sampled = kept.read()
    if sampled is None:
        sampled = _sampled(project, texts, images, neighbours)
        kept.write(sampled)
    return _stored(project, sampled, phase=1, encoders=[*texts.described(), *images.described()])


def _sampled(project: _Project, texts: SideEncoders, images: SideEncoders, neighbours: int) -> pd.DataFrame:
    """All pairs of phase 1: ``SAMPLES`` without ``pair``."""
    seed, groups = project.settings.seed, project.groups
    by_captions = {run.name: images_by_captions(run, groups, neighbours) for run in texts.runs}
    by_pictures = {run.name: images_by_pictures(run, neighbours) for run in images.runs}
    return joined(
        [
            image_pairs(by_captions),
            caption_pairs(by_pictures, groups, seed=seed),
            co_caption_pairs(groups, seed=seed),
        ]
    )


def _across(project: _Project, options: CrisscrossOptions, ratings: Ratings) -> StageResult:
    """Phase 2: images with captions of images like them, and with their own."""
    groups, settings = project.groups, project.settings
    n = CANDIDATES_AN_IMAGE * len(project.items.images) if options.candidates is None else options.candidates
    image_of = pd.Series(groups.image_of, index=groups.captions)
    by_texts, by_images = (
        ratings.rated(method) for method in (SamplingMethod.C2C_ISIM, SamplingMethod.I2I_CSIM)
    )
    as_images = {name: image_of.loc[by_texts[name]].to_numpy() for name in ("first", "second")}
    candidates = cross_candidates(
        frame(RATED, {**as_images, "score": by_texts["score"].to_numpy()}),
        by_images,
        groups,
        project.of(SamplingMethod.C2I_INTRASIM),
        n=n,
        seed=settings.seed,
    )
    sampled = joined([candidates, original_pairs(groups)])
    total = len(candidates) + len(project.of(SamplingMethod.C2I_INTRASIM))
    short = (
        f"the rated pairs of phase 1 offer no more than {total:,} of the {n:,} candidates asked for",
    ) * (total < n)
    return _stored(project, sampled, phase=2, lines=short)


def _stored(
    project: _Project,
    sampled: pd.DataFrame,
    *,
    phase: int,
    encoders: Sequence[tuple[Modality, str, str]] = (),
    lines: tuple[str, ...] = (),
) -> StageResult:
    """Store what is new of a phase's pairs; what it came to, for people and for machines."""
    new = new_rows(sampled, project.samples, project.groups)
    if len(new):
        with open_database(project.settings.db_url) as session:
            similarity_store.add_samples(session, new)
            session.commit()
    n_images, n_captions = len(project.items.images), len(project.items.captions)
    everything = joined([project.samples.drop(columns="pair"), new])
    counts: CrisscrossCounts = {
        "phase": phase,
        "samples": len(everything),
        "new_samples": len(new),
        "methods": method_counts(everything, new, n_images=n_images),
        "encoders": encoder_counts(sampled, encoders),
    }
    methods = [METHODS[place] for place in sorted(everything["method"].unique())]
    tasks = dict.fromkeys(method.task for method in methods if method.phase == phase)
    following = " and ".join(f"`{RATE.format(task=task, environment=Environment.SANDBOX)}`" for task in tasks)
    if not len(new):
        line = f"nothing to do: what phase {phase} samples is stored already"
        return StageResult("nothing_to_do", counts, lines=(*lines, line), next=following)
    tables = [methods_table(counts["methods"], phase, n_images=n_images, n_captions=n_captions)]
    if encoders:
        tables.append(encoders_table(counts["encoders"]))
    if phase == 1 and (n_images, n_captions) == (COCO_IMAGES, COCO_CAPTIONS):
        val, test = CXC_IMAGE_PAIRS
        lines = (*lines, f"of CxC's rows of image pairs {val:,} (val) and {test:,} (test) are distinct pairs")
    lines = (*lines, f"{several(len(new), 'sample')} are new to the project")
    return StageResult(counts=counts, tables=tuple(tables), lines=lines, next=following)


def _too_early(
    project: _Project, ratings: Ratings, environment: Environment, *, is_asked: bool, waits: bool
) -> StageResult:
    """Say how far the ratings of phase 1 are; ProposalError where phase 2 was asked for in so many words."""
    far = ratings.words()
    asked = (RATE.format(task=task.value, environment=environment) for task in ratings.tasks_missing)
    publish = " and ".join(f"`{command}`" for command in asked)
    decide = "`mitl review` for what waits for a person, then " * waits
    following = f"{decide}{publish}, then `mitl harvest`"
    if is_asked:
        raise ProposalError(
            f"phase 2 follows from people's ratings of phase 1, of which some are missing in {environment}: {far}; run "
            f"{following}, or lower --min-ratings"
        )
    counts: CrisscrossCounts = {
        "phase": 2,
        "samples": len(project.samples),
        "new_samples": 0,
        "ratings": ratings.counts(),
    }
    return StageResult(
        "nothing_to_do",
        counts,
        tables=(ratings.table(),),
        lines=("nothing to do: phase 1 is stored, and phase 2 waits for its ratings",),
        next=following,
    )
