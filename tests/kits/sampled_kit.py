"""Ratings of sampled pairs put into a project's database, as if people had been asked on one page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import numpy as np
import pandas as pd

from mitl.db.models import (
    Assignment,
    Batch,
    Dataset,
    Hit,
    Round,
    SimilarityAnswer,
    SimilarityItem,
    Worker,
)
from mitl.db.session import open_database
from mitl.db.store import similarity as similarity_store
from mitl.records import Decision, Environment, HitState, JudgementSource, Outcome
from mitl.records.similarity import TASKS, Likeness, SimilarityRole
from mitl.settings import Settings

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def samples_of(settings: Settings) -> pd.DataFrame:
    """All that is sampled."""
    with open_database(settings.db_url, read_only=True) as session:
        return similarity_store.samples(session)


def rate(
    settings: Settings,
    task: Likeness,
    score_of: Callable[[int, int], float],
    *,
    raters: int = 5,
    fewer: dict[int, int] | None = None,
    decision: Decision = Decision.PASS,
) -> None:
    """One HIT with every pair of a task, answered by so many workers.

    Args:
        score_of: the rating of a pair's left and right item.
        fewer: row of a pair → how many rate it, where these are not all.
        decision: on every submission.
    """
    with open_database(settings.db_url) as session:
        samples = similarity_store.samples(session)
        pairs = samples[samples["task"] == TASKS.index(task)].drop_duplicates("pair")
        dataset = session.query(Dataset).one()
        turn = session.query(Round).first() or Round(
            dataset_id=dataset.id, number=1, strategy="crisscross", opened_at=NOW
        )
        session.add(turn)
        session.flush()
        name = f"{task}-{session.query(Batch).count()}"
        batch = Batch(
            name=name,
            round_id=turn.id,
            environment=Environment.SANDBOX,
            kind="similarity",
            direction=task.value,
            template="similarity-texts",
            reward_cents=10,
            assignments=raters,
            seed=0,
            pilot=False,
            source=JudgementSource.CROWD,
            planned_at=NOW,
        )
        session.add(batch)
        session.flush()
        hit = Hit(
            batch_id=batch.id, number=1, attempt=1, assignments=raters, state=HitState.CLOSED, token=name
        )
        session.add(hit)
        session.flush()
        rows = list(
            zip(pairs["pair"].tolist(), pairs["first"].tolist(), pairs["second"].tolist(), strict=True)
        )
        for place, (pair, _, _) in enumerate(rows, 1):
            session.add(
                SimilarityItem(
                    hit_id=hit.id,
                    place=place,
                    task=task,
                    role=SimilarityRole.ASKED,
                    pair_id=pair,
                    swapped=False,
                )
            )
        for rater in range(raters):
            worker = Worker(environment=Environment.SANDBOX, mturk_worker_id=f"{name}-{rater}")
            session.add(worker)
            session.flush()
            assignment = Assignment(
                hit_id=hit.id,
                worker_id=worker.id,
                mturk_assignment_id=f"{name}-{rater}",
                status="Submitted",
                decision=decision,
                raw_xml="",
            )
            session.add(assignment)
            session.flush()
            for place, (pair, first, second) in enumerate(rows, 1):
                answered = rater < (fewer or {}).get(pair, raters)
                score = float(np.clip(score_of(first, second) + 0.1 * (rater - raters // 2), 0, 5))
                session.add(
                    SimilarityAnswer(
                        assignment_id=assignment.id,
                        place=place,
                        outcome=Outcome.ANSWERED if answered else Outcome.SKIPPED,
                        score=score if answered else None,
                    )
                )
        session.commit()
