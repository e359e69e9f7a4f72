"""`mitl rate release`: from a project to a folder in CxC's layout, and from there into another project."""

from __future__ import annotations

import csv
import io
import json
import shutil
import zipfile

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_kit import fails, ok
from similarity_kit import likeness, rate, run_rate, sampled
from sqlalchemy import select
from world_kit import SANDBOX

from mitl.core.clock import utc_now
from mitl.datasets.cxc import read_rated_pairs, read_sits
from mitl.db.models import Assignment, Hit, SimilarityAnswer, SimilarityItem, Worker
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import similarity as similarity_store
from mitl.records import Decision, HitState, Outcome
from mitl.records.frames import frame
from mitl.records.similarity import (
    METHODS,
    SAMPLES,
    TASKS,
    Likeness,
    SamplingMethod,
    SimilarityRole,
)
from mitl.settings import load
from mitl.stages.harvesting.harvest import harvest


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    """Sixteen pairs of each task with five ratings each, harvested; one comment that says too much."""
    settings = sampled(tmp_path_factory.mktemp("released") / "p")
    for task in Likeness:
        run_rate(settings, task.value)
    rate(settings, (lambda worker, item: likeness(worker, item),) * 5)
    harvest(settings, SANDBOX)
    with open_database(settings.db_url) as session:
        answer = session.scalars(select(SimilarityAnswer).order_by(SimilarityAnswer.id)).first()
        assert answer is not None
        worker = session.scalars(select(Worker.mturk_worker_id).order_by(Worker.id)).first()
        answer.text = f"same dog, write to me@example.org, I am {worker}"
        session.commit()
    return settings


@pytest.fixture
def project(rated, tmp_path, monkeypatch):
    """A copy of it, entered."""
    shutil.copytree(rated.project, tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    return load(tmp_path / "p", environ={})


def release(*words):
    return ok("rate", "release", "--sandbox", *words)


def test_a_release_is_whole_and_the_same_twice(project):
    """Its counts are those of the scores; built again elsewhere under its name it has the same bytes."""
    told = release("--out", "r", "--check-privacy", "--json").json
    again = release("--out", "r", "--json").json
    release("--out", "elsewhere", "--name", "r")
    scores = ok("rate", "scores", "--sandbox", "--json").json["counts"]["tasks"]

    assert (told["status"], again["status"]) == ("done", "nothing_to_do")
    assert told["counts"]["ids_checked"] > 5 and told["paths"] == {"release": "r"}
    for task in Likeness:
        found = told["counts"]["tasks"][task.value]
        assert (found["pairs"], found["incomplete"]) == (16, 0)
        assert found["mean"] == pytest.approx(scores[task.value]["mean"], abs=1e-4)
    files = {path.name: path.read_bytes() for path in (project.project / "r").iterdir()}
    assert {path.name: path.read_bytes() for path in (project.project / "elsewhere").iterdir()} == files
    assert "batches" in json.loads(files["manifest.json"])["configuration"]
    sheet = files["datasheet.md"].decode()
    rating = pq.read_table(io.BytesIO(files["ratings.parquet"])).to_pylist()[0]
    with open_database(project.db_url, read_only=True) as session:
        workers = session.scalars(select(Worker.mturk_worker_id)).all()
    names = {}
    for worker in workers:
        ok("crowd", "person", worker, "--out", f"{worker}.zip")
        with zipfile.ZipFile(f"{worker}.zip") as archive:
            (told,) = json.loads(archive.read("project/releases.json"))
        assert told["release"] == "ratings of r"
        names[told["your_name"]] = worker
    assert rating["worker"] in names
    assert "wording `similarity-texts`" in sheet and "- 5: " in sheet and "rule: an identical pair" in sheet


def test_what_was_scored_is_what_is_read_back(project):
    """Every sampled pair with the score that `mitl rate scores` writes, rounded."""
    release("--out", "r")
    ok("rate", "scores", "--sandbox", "--csv", "scores.csv")
    rows = list(csv.DictReader(io.StringIO((project.project / "scores.csv").read_text())))

    for task in Likeness:
        pairs = read_rated_pairs(project.project / "r" / f"{task.value}_test.csv", task)
        found = dict(
            zip(
                zip(pairs.first.tolist(), pairs.second.tolist(), strict=True),
                pairs.scores.tolist(),
                strict=True,
            )
        )
        wanted = {
            (int(row["first"]), int(row["second"])): float(row["score"])
            for row in rows
            if row["task"] == task.value
        }
        assert found.keys() == wanted.keys()
        assert np.allclose([found[key] for key in wanted], list(wanted.values()), atol=0.005 + 1e-9)


def test_another_project_takes_the_ratings_in(project, tmp_path, monkeypatch):
    """`mitl init --cxc` and `mitl compare cxc:FILE` read the file of images and captions."""
    release("--out", "r")
    path = project.project / "r" / "sits_test.csv"
    monkeypatch.chdir(tmp_path)

    ok("init", "other", "--dataset", "scenes", "--n-images", "30", "--cxc", path)

    with open_database(load(tmp_path / "other", environ={}).db_url, read_only=True) as session:
        assert len(item_store.ratings(session)) == len(read_sits(path)) == 16
    header, first, *_ = csv.reader(path.read_text().splitlines())
    row = [".125" if name == "agg_score" else cell for name, cell in zip(header, first, strict=True)]
    (tmp_path / "other.csv").write_text("\n".join(",".join(cells) for cells in (header, row)))
    again = ("init", "other", "--dataset", "scenes", "--n-images", "30", "--cxc")
    assert "is rated 0.125 in the file, and" in fails(1, *again, "other.csv")
    (tmp_path / "qrels.csv").write_text(path.read_text().replace(row[-1], "qrels"))
    assert "has the sampling method 'qrels', which names original positives" in fails(1, *again, "qrels.csv")
    assert "nothing to do" in ok(*again, path).out
    shutil.copy(path, tmp_path / "copy.csv")
    assert "cxc:copy.csv" in ok("compare", "cxc:copy.csv", f"cxc:{path}").out


def test_comments_are_scrubbed_or_left_out(project):
    """With --with-texts the address and the worker's id are gone and the rest is there."""
    release("--out", "plain")
    told = release("--out", "texts", "--with-texts", "--check-privacy", "--json").json

    assert "text" not in pq.read_schema(project.project / "plain" / "ratings.parquet").names
    texts = [
        text
        for text in pq.read_table(project.project / "texts" / "ratings.parquet")["text"].to_pylist()
        if text
    ]
    assert texts == ["same dog, write to [removed], I am [removed]"]
    assert told["counts"]["texts"]["removed"] == {"id": 1, "email": 1}


def test_bad_input_is_one_clear_line(project):
    """Too few ratings, a folder that is not a release, another release there, a split that is no name."""
    (project.project / "notes").mkdir()
    (project.project / "notes" / "todo.txt").write_text("keep me")
    release("--out", "r")

    assert "no sampled pair has 6 ratings" in fails(
        1, "rate", "release", "--sandbox", "--out", "n", "--min-ratings", "6"
    )
    assert "is not a release, so it is left alone" in fails(
        1, "rate", "release", "--sandbox", "--out", "notes"
    )
    refused = fails(1, "rate", "release", "--sandbox", "--out", "r", "--method", "model")
    assert "give --replace" in refused
    assert "would be part of file names" in fails(
        1, "rate", "release", "--sandbox", "--out", "n", "--split", "../x"
    )
    assert not (project.project / "n").exists()
    assert release("--out", "r", "--method", "model", "--replace", "--json").json["status"] == "done"


def test_a_release_of_ratings_leaves_the_other_release_alone(project):
    """Its secret is its own; `mitl build-dataset` and the report know nothing of it."""
    release("--out", "r")

    assert "no judgements" in fails(1, "build-dataset", "--out", "r2")
    assert ok("report").status == 0


COCO = {
    "images": [{"id": n, "file_name": f"COCO_val2014_{n:012d}.jpg"} for n in (9, 25, 30)],
    "annotations": [
        {"id": 100 * image + n, "image_id": image, "caption": f"caption {n} of {image}"}
        for image in (9, 25, 30)
        for n in range(2)
    ],
}


def put_ratings(settings, task, pairs, method, raters=5):
    """Sample, post and answer pairs by rows alone: ``raters`` workers give the same scores, 0.1 apart."""
    numbers = np.array(pairs, np.int64)
    with open_database(settings.db_url) as session:
        dataset = item_store.dataset(session)
        similarity_store.add_samples(
            session,
            frame(
                {name: kind for name, kind in SAMPLES.items() if name != "pair"},
                {
                    "task": np.full(len(pairs), TASKS.index(task)),
                    "first": numbers[:, 0],
                    "second": numbers[:, 1],
                    "method": np.full(len(pairs), METHODS.index(method)),
                    "encoder": [""] * len(pairs),
                    "rank": np.zeros(len(pairs)),
                    "similarity": np.full(len(pairs), np.nan),
                },
            ),
        )
        rows, swapped = similarity_store.ensure_similarity_pairs(session, task, *numbers.T)
        now = utc_now()
        batch = hit_store.add_batch(
            session,
            hit_store.NewBatch(
                round_id=hit_store.open_round(session, dataset.id, SANDBOX, now),
                environment=SANDBOX,
                direction=task.value,
                template={"sts": "similarity-texts", "sis": "similarity-images"}.get(
                    task.value, "similarity-mixed"
                ),
                reward_cents=50,
                assignments=raters,
                seed=0,
                planned_at=now,
                kind="similarity",
            ),
        )
        hit = Hit(
            batch_id=batch.id, number=1, attempt=1, replaces_id=None, assignments=raters, state=HitState.CLOSED,
            mturk_hit_id=f"HIT{task}", token=f"token{task}",
        )  # fmt: skip
        session.add(hit)
        session.flush()
        for place, (pair, turned) in enumerate(zip(rows.tolist(), swapped.tolist(), strict=True), start=1):
            session.add(
                SimilarityItem(
                    hit_id=hit.id,
                    place=place,
                    task=task,
                    role=SimilarityRole.ASKED,
                    pair_id=pair,
                    swapped=turned,
                )
            )
        for n in range(raters):
            name = f"AWORKER{n}"
            worker = session.scalars(select(Worker).where(Worker.mturk_worker_id == name)).first()
            if worker is None:
                worker = Worker(
                    environment=SANDBOX, mturk_worker_id=name, excluded_at=None, capped_at=None, note=None
                )
                session.add(worker)
                session.flush()
            submission = Assignment(
                hit_id=hit.id, worker_id=worker.id, mturk_assignment_id=f"ASSIGN{task}{n}", accepted_at=now,
                submitted_at=now, status="Approved", decision=Decision.PASS, raw_xml="",
            )  # fmt: skip
            session.add(submission)
            session.flush()
            for place in range(1, len(pairs) + 1):
                session.add(
                    SimilarityAnswer(
                        assignment_id=submission.id, place=place, outcome=Outcome.ANSWERED,
                        score=place + n / 10, text=None, active_ms=9_000,
                    )
                )  # fmt: skip
        session.commit()


def test_cocos_items_are_released_under_cxcs_names(tmp_path, monkeypatch):
    """And the readers of CxC's files give COCO's ids again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "captions.json").write_text(json.dumps(COCO))
    ok("init", "p", "--dataset", "coco", "--captions", "captions.json")
    settings = load(tmp_path / "p", environ={})
    monkeypatch.chdir(tmp_path / "p")
    put_ratings(settings, Likeness.STS, [(1, 2), (4, 3)], SamplingMethod.C2C_COCAPTION)
    put_ratings(settings, Likeness.SIS, [(3, 1)], SamplingMethod.I2I_CSIM)
    put_ratings(settings, Likeness.SITS, [(2, 3), (1, 1)], SamplingMethod.C2I_ORIGINAL)

    release("--out", "r", "--split", "val", "--check-privacy")

    folder = tmp_path / "p" / "r"
    assert (folder / "sts_val.csv").read_text() == (
        "caption1,caption2,agg_score,sampling_method\n"
        "COCO_val2014:sentid:900,COCO_val2014:sentid:901,1.2,c2c_cocaption\n"
        "COCO_val2014:sentid:2501,COCO_val2014:sentid:2500,2.2,c2c_cocaption\n"
    )
    assert (folder / "sis_val.csv").read_text().splitlines()[1] == (
        "COCO_val2014_000000000030.jpg,COCO_val2014_000000000009.jpg,1.2,i2i_csim"
    )
    assert (folder / "sits_val.csv").read_text() == (
        "caption,image,agg_score,sampling_method\n"
        "COCO_val2014:sentid:900,COCO_val2014_000000000009.jpg,2.2,c2i_original\n"
        "COCO_val2014:sentid:2500,COCO_val2014_000000000025.jpg,1.2,c2i_original\n"
    )
    pairs = read_rated_pairs(folder / "sits_val.csv", Likeness.SITS)
    assert (pairs.first.tolist(), pairs.second.tolist()) == ([9, 25], [900, 2500])
    assert ok("init", ".", "--dataset", "coco", "--captions", "../captions.json", "--cxc", "r/sits_val.csv")
    with open_database(settings.db_url, read_only=True) as session:
        assert len(item_store.ratings(session)) == 2
