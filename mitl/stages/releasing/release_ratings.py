"""Building a release of ratings of similarity: take together, name, write."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import jinja2
import jinja2.nodes
import numpy as np
import pandas as pd

from mitl.campaign.kinds import wording_of
from mitl.campaign.kinds.similarity.answers import RULE
from mitl.campaign.kinds.similarity.scores import TaskStanding, standing
from mitl.core.formats import percent
from mitl.crowd.context import Context, open_context
from mitl.db.session import reading
from mitl.db.store import items as item_store
from mitl.db.store import releases
from mitl.db.store import similarity as similarity_store
from mitl.db.store.hits import BatchRow
from mitl.hits.templates import HitTemplate
from mitl.judgements.rating_tests import apart
from mitl.judgements.similarity import ENOUGH, Aggregation, agreement
from mitl.positives.folders import WrittenRelease
from mitl.positives.rating_input import (
    SHOWN_ROLES,
    AskedWording,
    ControlRecord,
    RatingInput,
    RatingSummary,
    RatingSummaryCounts,
    check_split,
    coco_names,
    own_names,
)
from mitl.positives.rating_release import write_ratings
from mitl.positives.release_input import Origins
from mitl.positives.scrubbing import TextScan, scrubbed_columns
from mitl.proposals.crisscross import BY_IMAGES, BY_TEXTS
from mitl.records import Environment, IdKind, StageResult, Table, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.records.similarity import (
    METHODS,
    SIMILARITY,
    SIMILARITY_ROLES,
    TASKS,
    SamplingMethod,
    SimilarityRole,
)
from mitl.settings import Settings
from mitl.stages.releasing.build_dataset import release_card, written_lines
from mitl.stages.releasing.origins import ReleaseFacts, batch_pay, crowd, pay, release_facts
from mitl.stages.releasing.verify import ReleasePaths

SALT = "ratings of "
"""Before a release's name where its secret is kept: a release of positives of the same name has another one."""


@dataclass(frozen=True, slots=True)
class RatingRules:
    """How ratings become a release."""

    method: Aggregation = Aggregation.MEAN
    min_ratings: int = ENOUGH
    split: str = "test"
    name: str | None = None
    """Of the release; the folder's where none is given."""
    with_texts: bool = False
    """What workers wrote in their own words too, scrubbed."""


@printed_by("rate release")
class RatingReleaseCounts(EnvironmentCounts, RatingSummaryCounts):
    """What a release of ratings holds, and how it was made."""

    manifest_sha256: Annotated[str, "hash of the release's manifest.json"]
    method: Annotated[str, "how several ratings of a pair became one"]
    min_ratings: Annotated[int, "ratings that a pair needs to be in it"]
    split: Annotated[str, "part of the files' names"]
    ids_checked: Annotated[int, "ids that `--check-privacy` looked for; 0 without it"]


def release_ratings(
    settings: Settings,
    out: Path,
    environment: Environment | None = None,
    *,
    rules: RatingRules | None = None,
    check_privacy: bool = False,
    replace_earlier: bool = False,
) -> StageResult:
    """Write a release of one environment's ratings in CxC's layout.

    Args:
        check_privacy: prove before writing that no file holds the raw id of a worker, an assignment or a HIT, or a
            plain hash of one.
        replace_earlier: write over another release of ratings that the folder holds.

    Raises:
        ReleaseError: no pair has enough ratings, the folder holds something else, an item's name would be taken for
            another's, or a file would give an id away.
    """
    rules = rules or RatingRules()
    check_split(rules.split)
    release_name = rules.name or out.absolute().name
    with open_context(settings, environment, unposted=Environment.LIVE) as context:
        session = context.session
        with reading(session):
            facts = release_facts(context, SIMILARITY)
            data = _input(context, facts, rules, release_name)
        data = replace(data, salt=releases.salt(session, SALT + release_name))
        session.commit()
        ids = facts.private_ids if check_privacy else {}
        written = write_ratings(out, data, private_ids=ids, replace=replace_earlier)
    return _result(data, written, facts.undecided, ids)


def _input(context: Context, facts: ReleaseFacts, rules: RatingRules, name: str) -> RatingInput:
    """All but the salt."""
    settings = context.settings
    state = standing(context, rules.method)
    ratings, texts = _given(context, facts, state, with_texts=rules.with_texts)
    rated = [task for task in TASKS if len(state.of(task)[0])]
    batches = {batch.name for batch in facts.batches}
    return RatingInput(
        name=name,
        dataset=facts.dataset.name,
        dataset_sha256=facts.dataset.content_sha256,
        environment=context.environment,
        id_kind=facts.dataset.id_kind,
        split=rules.split,
        names=_names(context, facts),
        listed=state.listed,
        given=ratings,
        salt=b"",
        method=rules.method,
        min_ratings=rules.min_ratings,
        agreements={task: agreement(state.of(task)[0], seed=settings.seed) for task in rated},
        fits=state.aggregated.fits,
        encoders=_encoders(state.samples),
        asked={
            task: tuple(_asked(wording_of(SIMILARITY, name, settings.wordings)) for name in templates)
            for task in rated
            if (templates := sorted({batch.template for batch in facts.batches if batch.direction == task}))
        },
        controls=_controls(state.ratings),
        rule=RULE.removeprefix("rule: "),
        seeds={"project": settings.seed},
        configuration={"batches": [_batch(facts, batch) for batch in facts.batches]},
        origins=Origins(
            crowd=crowd(
                context, [row for row in facts.submissions if row.batch in batches], ratings["worker"]
            ),
            batches=batch_pay(facts),
            pay=pay(settings, context.environment, facts.settled),
        ),
        texts=texts,
        card=release_card(settings),
    )


def _given(
    context: Context, facts: ReleaseFacts, state: TaskStanding, *, with_texts: bool
) -> tuple[pd.DataFrame, TextScan | None]:
    """The ratings that a release shows (``GIVEN``), and what the scan of their texts found."""
    roles = [SIMILARITY_ROLES.index(role) for role in SHOWN_ROLES]
    shown = state.ratings[state.ratings["role"].isin(roles)]
    places = ["assignment", "place"]
    counted = state.counted[places].assign(counted=True)
    shown = shown.merge(counted, on=places, how="left").assign(
        counted=lambda rows: rows["counted"].notna(), worker=lambda rows: rows["worker"].astype("category")
    )
    columns = ["pair", "worker", "score", "outcome", "role", "swapped", "active_ms", "usable", "counted"]
    if not with_texts:
        return shown[columns], None
    written = similarity_store.comments(context.session, context.environment)
    told = shown.merge(written, on=places, how="left")
    told = told.assign(text=told["text"].astype("category"))[[*columns, "text"]]
    every_row = np.ones(len(told), np.bool_)
    return scrubbed_columns(told, chain.from_iterable(facts.private_ids.values()), every_row)


def _names(context: Context, facts: ReleaseFacts) -> Mapping[str, Mapping[int, str]]:
    """What the files call images and captions: COCO's as CxC does, others by their own ids."""
    dataset = facts.dataset
    if dataset.kind != "coco" or dataset.id_kind is not IdKind.INTEGER:
        return {
            "image": own_names("image", facts.image_ids),
            "caption": own_names("caption", facts.caption_ids),
        }
    captions = item_store.captions(context.session, dataset.id)
    images = item_store.images(context.session, dataset.id, context.settings.project)
    return coco_names(
        facts.image_ids,
        facts.caption_ids,
        {caption.id: caption.image_id for caption in captions},
        {image.id: f"{image.path or ''} {image.url or ''}" for image in images},
    )


def _encoders(samples: pd.DataFrame) -> dict[SamplingMethod, dict[str, int]]:
    """Method → encoder → distinct pairs that it chose; what people's ratings chose is no encoder's choice."""
    is_named = samples["encoder"].astype(str) != ""
    named = samples[is_named & ~samples["encoder"].isin([BY_TEXTS, BY_IMAGES])]
    return {
        METHODS[int(str(place))]: {
            str(encoder): int(rows["pair"].nunique())
            for encoder, rows in of_method.groupby(of_method["encoder"].astype(str), sort=True)
        }
        for place, of_method in named.groupby("method", sort=True)
    }


def _asked(wording: HitTemplate) -> AskedWording:
    """The title and the levels of a wording; its page says them as a list that it calls ``levels``."""
    page = (wording.search_path[0] / "page.html.j2").read_text(encoding="utf-8")
    levels: tuple[str, ...] = ()
    for node in jinja2.Environment(autoescape=True).parse(page).find_all(jinja2.nodes.Assign):
        named = isinstance(node.target, jinja2.nodes.Name) and node.target.name == "levels"
        if named and isinstance(node.node, jinja2.nodes.List):
            with contextlib.suppress(jinja2.nodes.Impossible):  # made of more than plain words
                levels = tuple(map(str, node.node.as_const()))
    return AskedWording(wording.name, wording.title, levels)


def _batch(known: ReleaseFacts, batch: BatchRow) -> dict[str, object]:
    """What decided a batch."""
    return {
        "name": batch.name,
        "task": batch.direction,
        "assignments": batch.assignments,
        "reward_cents": batch.reward_cents,
        "template": batch.template,
        "template_sha256": known.wordings.get(batch.name, []),
        "seed": batch.seed,
        "pilot": batch.pilot,
    }


def _controls(ratings: pd.DataFrame) -> tuple[ControlRecord, ...]:
    """How the usable ratings of controls came out."""
    rated = ratings[ratings["usable"] & ratings["score"].notna()]

    def of(role: SimilarityRole) -> pd.DataFrame:
        return rated[rated["role"] == SIMILARITY_ROLES.index(role)]

    figures = {
        SimilarityRole.IDENTICAL: of(SimilarityRole.IDENTICAL)["score"],
        SimilarityRole.RANDOM: of(SimilarityRole.RANDOM)["score"],
        SimilarityRole.REPEATED: apart(rated)["apart"],
    }
    return tuple(
        ControlRecord(role, len(values), float(values.mean()) if len(values) else None)
        for role, values in figures.items()
    )


def _result(
    data: RatingInput,
    written: WrittenRelease[RatingSummary],
    undecided: int,
    ids: Mapping[str, Collection[str]],
) -> StageResult:
    summary = written.summary.counts
    tasks = summary["tasks"]
    warnings = [
        f"the model of {task.upper()} raters {fit.text}"
        for task, fit in data.fits.items()
        if not fit.converged
    ]
    if undecided:
        warnings.append(
            f"{several(undecided, 'submission')} not decided yet, so the ratings are not in this release; run `mitl "
            "harvest` and `mitl review`"
        )
    in_scores = int(data.complete.drop_duplicates("pair")["n_ratings"].sum())
    pairs = sum(figures["pairs"] for figures in tasks.values())
    told = f"{several(in_scores, 'rating')} in scores of {several(pairs, 'pair')}"
    left = sum(figures["incomplete"] for figures in tasks.values())
    if left:
        warnings.append(
            f"{several(left, 'pair')} with fewer than {several(data.min_ratings, 'rating')} left out and listed in "
            "incomplete.csv; `mitl rate publish` asks those again that were posted"
        )
    counts: RatingReleaseCounts = {
        "environment": data.environment.value,
        "manifest_sha256": written.manifest_sha256,
        "method": data.method.value,
        "min_ratings": data.min_ratings,
        "split": data.split,
        **summary,
        "ids_checked": sum(map(len, ids.values())),
    }
    paths: ReleasePaths = {"release": str(written.folder)}
    return StageResult(
        status="done" if written.changed else "nothing_to_do",
        counts=counts,
        paths=paths,
        warnings=tuple(warnings),
        tables=(
            Table(
                "",
                ("task", "pairs", "rows", "mean", "positive", "left out"),
                tuple(
                    (
                        task,
                        figures["pairs"],
                        figures["rows"],
                        figures["mean"],
                        percent(figures["positive_share"]),
                        figures["incomplete"],
                    )
                    for task, figures in tasks.items()
                ),
            ),
        ),
        lines=written_lines(data, written, told, ids),
        next=f"mitl evaluate --cxc {shlex.quote(str(written.folder))}",
    )
