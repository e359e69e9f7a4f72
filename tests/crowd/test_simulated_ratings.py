"""Scripted workers on pages that ask how alike two items are: through the same form, harvest and review as people."""

from __future__ import annotations

import numpy as np
import pytest
from similarity_kit import pages_of, run_rate, sampled
from world_kit import SANDBOX

from mitl.crowd.truth import GRADES, graded_truth_source
from mitl.datasets.scenes.files import read_world
from mitl.datasets.scenes.similarity import graded_similarity
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store import similarity as similarity_store
from mitl.errors import UsageError
from mitl.records import Label
from mitl.records.similarity import SIMILARITY_ROLES, TASKS, Likeness, SimilarityRole
from mitl.settings import WORLD_FOLDER
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate


@pytest.fixture
def project(tmp_path):
    """A world with sixteen pairs of each task sampled."""
    return sampled(tmp_path / "p")


def rated(settings):
    """``RATINGS`` with the known truth beside them."""
    world = read_world(settings.project / WORLD_FOLDER)
    with open_database(settings.db_url, read_only=True) as session:
        ratings = similarity_store.ratings(session, SANDBOX)
        samples = similarity_store.samples(session).drop_duplicates("pair").set_index("pair")
        images, captions = item_store.id_maps(session, item_store.dataset(session).id)
    names = {
        side: {number: name for name, number in known.items()}
        for side, known in (("image", images), ("caption", captions))
    }
    asked = ratings[ratings["role"] == SIMILARITY_ROLES.index(SimilarityRole.ASKED)]
    parts = []
    for place, task in enumerate(TASKS):
        rows = asked[asked["task"] == place]
        first, second = (
            [names[side][number] for number in samples.loc[rows["pair"], column]]
            for side, column in zip(task.sides, ("first", "second"), strict=True)
        )
        parts.append(rows.assign(truth=graded_similarity(world, task, first, second)))
    return ratings, parts


def test_careful_raters_rate_what_the_scenes_say(project):
    """All three tasks are answered in full by five different workers each, and their means follow the truth."""
    for task in Likeness:
        run_rate(project, task.value)
    hits = pages_of(project)

    answered = simulate(project, SANDBOX)
    harvest(project, SANDBOX)

    ratings, parts = rated(project)
    assert answered.counts["submitted"] == 5 * len(hits)
    assert len(ratings) == 5 * sum(map(len, hits.values()))
    assert ratings["score"].notna().all() and ratings["active_ms"].min() > 1000
    assert (ratings.groupby(["hit", "place"], observed=True)["worker"].nunique() == 5).all()
    for part in parts:
        mean = part.groupby("pair")[["score", "truth"]].mean()
        assert len(mean) == 16
        assert np.corrcoef(mean["score"], mean["truth"])[0, 1] > 0.9
    identical = ratings[ratings["role"] == SIMILARITY_ROLES.index(SimilarityRole.IDENTICAL)]
    assert identical["score"].median() > 4.5


def test_raters_who_do_not_look_wait_for_a_person(project):
    """One number, or one a page: every page of theirs fails a control, and none of them is rejected by machine.

    A second simulation has nothing to do.
    """
    run_rate(project, "sis", limit=7)

    answered = simulate(project, SANDBOX, population="one-number:0.5,straight-liner:0.5")
    again = simulate(project, SANDBOX, population="mixed-raters")
    counts = harvest(project, SANDBOX).counts

    assert again.status == "nothing_to_do"
    assert counts["queued"] == answered.counts["submitted"] > 0
    assert counts["approved"] == 0 and "rejected" not in counts


def test_another_truth_than_the_scenes_grades_by_labels(project):
    """With the data set's own pairs for truth: what belongs together is alike, all else is not, whatever the sides."""
    grade = graded_truth_source(project, "original")

    assert grade(Likeness.SITS, ["1", "1"], ["1", "6"]) == [GRADES[Label.YES], GRADES[Label.NO]]
    assert grade(Likeness.STS, ["1", "1", "1"], ["1", "2", "6"]) == [
        5.0,
        GRADES[Label.YES],
        GRADES[Label.NO],
    ]
    assert grade(Likeness.SIS, ["1", "1"], ["1", "2"]) == [5.0, GRADES[Label.NO]]
    with pytest.raises(UsageError, match="no truth called 'guessed'"):
        graded_truth_source(project, "guessed")


def test_graded_truth_is_read_from_the_world(project):
    """By name as for labels, many pairs at once."""
    world = read_world(project.project / WORLD_FOLDER)
    first, second = ["1", "2", "3"], ["3", "2", "9"]

    for task in Likeness:
        known = graded_similarity(world, task, first, second).tolist()
        assert graded_truth_source(project, "scenes")(task, first, second) == known
