"""What teaches an annotator: originals, people's answers, and nothing of an audit."""

from __future__ import annotations

import numpy as np
import pytest
from harvest_kit import in_pipeline
from world_kit import SANDBOX, make_world, run_propose, work_until_done

from mitl.core.arrays import distinct
from mitl.crowd.context import open_context
from mitl.db.store import columns
from mitl.records.frames import LABELS, counts
from mitl.records.rounds import TEACHING
from mitl.settings import Settings
from mitl.stages.collecting.show import collected
from mitl.stages.training.gathering import no_lesson, teaching

NOTHING = np.empty(0, np.int64)


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = make_world(tmp_path_factory.mktemp("teaching"))
    run_propose(settings, image_queries=15, caption_queries=30)
    work_until_done(settings)
    return settings


def taught(settings, excluded=NOTHING):
    with open_context(settings, SANDBOX, read_only=True) as context:
        return teaching(context, excluded, collected(context))


def test_before_anybody_answers_only_originals_teach(tmp_path):
    """Each is a match of grade 1 that nobody was asked about."""
    found = taught(make_world(tmp_path, n_images=20))

    assert list(found.columns) == list(TEACHING)
    assert len(found) == 100
    assert found["original"].all()
    assert found["positive"].all()
    assert set(found["grade"]) == {1.0}
    assert set(found["n"]) == {0}


def test_grades_are_means_over_the_answers_and_the_majority_decides(worked):
    """Against a loop over every answer; a tie is no match."""
    found = taught(worked).set_index("pair")
    with open_context(worked, SANDBOX, read_only=True) as context:
        judgements = columns.judgement_columns(context.session, SANDBOX)
    by_pair = {}
    for row in judgements[counts(judgements)].itertuples():
        by_pair.setdefault(row.pair, []).append(LABELS[row.label])

    assert found.index.is_monotonic_increasing
    assert found.index.is_unique
    assert by_pair.keys() == set(found.index[found["n"] > 0])
    assert {label for labels in by_pair.values() for label in labels} == set(LABELS)
    for pair, labels in by_pair.items():
        row = found.loc[pair]
        assert row["grade"] == pytest.approx(np.mean([1 - (label.code - 1) / 3 for label in labels]))
        assert row["positive"] == (2 * sum(label.is_positive for label in labels) > len(labels))
        assert row["n"] == len(labels)
    assert (found["n"] == 0).any()
    assert found[found["n"] == 0]["original"].all()


def test_answers_on_excluded_pairs_teach_nothing(worked):
    """An original among them is a match again, and the others are gone."""
    every = taught(worked)
    asked = every[every["n"] > 0]
    drawn = np.sort(asked["pair"].to_numpy()[::3])
    rest = taught(worked, drawn).set_index("pair")
    of_drawn = every[every["pair"].isin(drawn)]

    assert (
        rest.index.to_numpy().tolist()
        == distinct(
            np.setdiff1d(every["pair"], of_drawn["pair"][~of_drawn["original"]]).astype(np.int64)
        ).tolist()
    )
    assert (rest.loc[of_drawn["pair"][of_drawn["original"]], "n"] == 0).all()


def test_an_audit_s_answers_teach_nothing(worked):
    """Pages' candidates turned into audit places: hardly anything is left but originals."""
    with open_context(worked, SANDBOX, read_only=True) as context:
        assert len(no_lesson(context)) == 0
    before = taught(worked)
    in_pipeline(worked, "UPDATE hit_item SET role = 'audit' WHERE role = 'candidate'")

    assert (taught(worked)["n"] > 0).sum() < (before["n"] > 0).sum() / 4
