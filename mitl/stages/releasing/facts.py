"""What a project knows of a release beside its pairs: items, runs, batches, the crowd; and all of it put together."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd
from sqlalchemy.orm import Session

from mitl.db.store import answers as answer_store
from mitl.db.store import columns
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import ledger as ledger_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.hits import BatchRow, HitRow
from mitl.db.store.items import DatasetRow
from mitl.db.store.ledger import SettledWork
from mitl.db.store.proposals import RunRow
from mitl.errors import ReleaseError, SettingsError
from mitl.hits.templates import load_template
from mitl.judgements.gold_records import GoldState, gold_state
from mitl.positives.merging import Exclusions, gather, merge
from mitl.positives.origins import Origins
from mitl.positives.pair_answers import pair_answers
from mitl.positives.release_input import ReleaseCard, ReleaseInput
from mitl.positives.rules import MergeRules
from mitl.positives.shown_texts import scrubbed_columns
from mitl.records import BatchKind, Decision, Direction, Environment, JudgementSource
from mitl.settings import Settings
from mitl.stages.analysing.snapshot import exclusion_sets
from mitl.stages.releasing.origins import origins


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """One environment of a project without its millions of judgements, by surrogate ids."""

    environment: Environment
    dataset: DatasetRow
    image_ids: Mapping[int, str]
    caption_ids: Mapping[int, str]
    exclusions: Exclusions
    n_exclusions: int
    runs: tuple[RunRow, ...]
    batches: tuple[BatchRow, ...]
    """Those that asked pairs."""
    queries: Mapping[Direction, tuple[int, ...]]
    submissions: tuple[AssignmentRow, ...]
    hits: tuple[HitRow, ...]
    settled: tuple[SettledWork, ...]
    """The submissions on posted pages with what was paid for them."""

    @property
    def private_ids(self) -> dict[str, Collection[str]]:
        """Kind → ids that no release may hold."""
        return {
            "worker": {row.worker for row in self.submissions},
            "assignment": {row.mturk_assignment_id for row in self.submissions},
            "HIT": {hit.mturk_hit_id for hit in self.hits if hit.mturk_hit_id is not None},
        }

    @property
    def undecided(self) -> int:
        """Submissions that wait for a decision."""
        names = {batch.name for batch in self.batches}
        waiting = (Decision.NONE, Decision.QUEUED)
        return sum(row.batch in names and row.decision in waiting for row in self.submissions)


def release_facts(session: Session, settings: Settings, environment: Environment) -> ReleaseFacts:
    """Read it all."""
    dataset = item_store.dataset(session)
    exclusions = item_store.exclusions(session)
    queries = proposal_store.queries(session)
    # Preferences between rankings are asked of the same crowd, and are no part of a release.
    batches = [one for one in hit_store.batches(session, environment) if one.kind == BatchKind.PAIRS]
    names = {batch.name for batch in batches}
    return ReleaseFacts(
        environment=environment,
        dataset=dataset,
        image_ids={i.id: i.external_id for i in item_store.images(session, dataset.id, settings.project)},
        caption_ids={c.id: c.external_id for c in item_store.captions(session, dataset.id)},
        exclusions=exclusion_sets(exclusions),
        n_exclusions=len(exclusions),
        runs=tuple(proposal_store.runs(session)),
        batches=tuple(batches),
        queries={direction: tuple(items) for direction, items in queries.items()},
        submissions=tuple(answer_store.assignments(session, environment)),
        hits=tuple(hit_store.hits(session, environment)),
        settled=tuple(
            work for work in ledger_store.settled_work(session, environment) if work.batch in names
        ),
    )


def release_input(
    session: Session,
    settings: Settings,
    known: ReleaseFacts,
    rules: MergeRules,
    name: str,
    *,
    with_texts: bool = False,
) -> ReleaseInput:
    """What a release is made of, but for its salt: judgements, proposals, ratings and originals as columns, merged.

    Args:
        with_texts: what workers wrote in their own words too, scrubbed.

    Raises:
        ReleaseError: nobody judged or rated anything.
    """
    judgements = columns.judgement_columns(session, known.environment, with_texts=with_texts)
    rated, scores = columns.rating_columns(session)
    if not len(judgements) and not len(rated):
        raise ReleaseError(
            "there are no judgements and no CxC ratings, so there is nothing to release; run `mitl harvest` first"
        )
    judgements, scan = scrubbed_columns(judgements, chain.from_iterable(known.private_ids.values()))
    golds = gold_state(judgements, settings.gold_rule)
    answers = pair_answers(judgements, rules, golds.withdrawn)
    evidence = gather(answers.pairs, rated, scores, columns.original_columns(session, known.dataset.id))
    return ReleaseInput(
        name=name,
        dataset=known.dataset.name,
        environment=known.environment,
        id_kind=known.dataset.id_kind,
        image_ids=known.image_ids,
        caption_ids=known.caption_ids,
        queries=known.queries,
        merged=merge(evidence, rules, known.exclusions),
        rules=rules,
        judgements=judgements,
        proposals=columns.proposal_columns(session),
        salt=b"",
        seeds={"project": settings.seed},
        configuration=_configuration(settings, known, rules),
        origins=_origins(session, settings, known, judgements, golds),
        texts=scan,
        fit=answers.fit,
        posterior=answers.posterior,
        warnings=answers.warnings,
        card=_card(settings),
    )


def _origins(
    session: Session,
    settings: Settings,
    known: ReleaseFacts,
    judgements: pd.DataFrame,
    golds: GoldState,
) -> Origins:
    return origins(
        session,
        settings,
        known.environment,
        dataset=known.dataset,
        names={Direction.I2T: known.image_ids, Direction.T2I: known.caption_ids},
        batches=known.batches,
        hits=known.hits,
        submissions=known.submissions,
        settled=known.settled,
        golds=golds,
        answers=judgements,
    )


def _card(settings: Settings) -> ReleaseCard:
    """What the makers state in [release], and the contact that workers are given where they state none.

    Raises:
        SettingsError: what is stated as a date is none.
    """
    stated: dict[str, Any] = {"contact": settings.contact or "", **settings.release}
    card = ReleaseCard(**stated)
    try:
        if card.date_published:
            dt.date.fromisoformat(card.date_published)
    except ValueError:
        raise SettingsError(
            f'release.date_published is {card.date_published!r}, which is no date; write it as "2026-11-20"'
        ) from None
    return card


def _configuration(settings: Settings, known: ReleaseFacts, rules: MergeRules) -> dict[str, object]:
    return {
        "recipe": rules.recipe.value,
        "runs": [json.loads(run.config) for run in known.runs],
        "batches": [_batch(settings, batch) for batch in known.batches],
        "exclusions": known.n_exclusions,
        "gold_rule": {
            "positive": [label.value for label in settings.gold_positive_passes],
            "negative": [label.value for label in settings.gold_negative_passes],
        },
    }


def _batch(settings: Settings, batch: BatchRow) -> dict[str, object]:
    """What decided a batch; of past work from a file nobody here knows which page its workers saw."""
    known: dict[str, object] = {
        "name": batch.name,
        "source": batch.source.value,
        "assignments": batch.assignments,
        "reward_cents": batch.reward_cents,
    }
    if batch.source is JudgementSource.IMPORT:
        return known
    return {
        **known,
        "template": batch.template,
        "template_sha256": load_template(batch.template, settings.wordings).content_hash,
        "direction": batch.direction,
        "seed": batch.seed,
    }
