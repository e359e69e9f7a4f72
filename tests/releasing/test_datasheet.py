"""The datasheet says what the database knows: machines, queries, controls, people, time, pay, agreement, texts."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace as replaced

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from aggregation_kit import count_alpha
from cli_kit import mitl, ok
from harvest_kit import in_pipeline
from hypothesis import given
from hypothesis import strategies as st
from judgement_kit import JUDGEMENTS
from pay_kit import copy_of, kept_project
from process_kit import project_settings
from release_kit import world
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.db.session import open_database
from mitl.db.store import columns
from mitl.errors import ReleaseError
from mitl.judgements.agreement import pair_agreement
from mitl.positives.pair_answers import judgement_frame
from mitl.positives.release import release_files, write_release
from mitl.positives.release_input import Origins, PastWork, ProposalRun, QueryDraw
from mitl.positives.scrubbing import MARK, Removed, TextScan, scrubbed_columns
from mitl.positives.verifying import verify_release
from mitl.records import Direction, Environment, Judgement, Label, Pair, PairRole
from mitl.records.frames import is_gold
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.operating.backup import backup
from mitl.stages.operating.restore import restore
from mitl.stages.releasing.build_dataset import ReleaseOptions, build_dataset
from mitl.stages.reporting.report import report

ID = "A2SUAM1J3GNN3B"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A worked-on sandbox project, a third of its pairs asked twice."""
    folder = tmp_path_factory.mktemp("sheet")
    settings = make_world(folder, n_images=14)
    run_propose(settings, image_queries=5, caption_queries=15)
    run_publish(settings, overlap=0.4)
    simulate(settings, SANDBOX, population="careful", hits_per_worker=2)
    harvest(settings, SANDBOX)
    return folder


def sheet_of(settings, name="release", environment=None):
    build_dataset(settings, settings.project / name, environment)
    return (settings.project / name / "datasheet.md").read_text()


def row(sheet, name):
    """The cell beside a name."""
    (line,) = [line for line in sheet.splitlines() if line.startswith(f"| {name} |")]
    return line.split(" | ")[1].removesuffix(" |")


@pytest.mark.slow
def test_it_tells_machines_queries_controls_and_people(project):
    """Names with their kinds, draws with their seed, the gold rule in words, and how many worked."""
    settings = project_settings(project)
    sheet = sheet_of(settings)
    with open_database(settings.db_url, read_only=True) as session:
        judged = columns.judgement_columns(session, SANDBOX)

    assert "| near | one vector an item, compared by inner product or cosine |" in sheet
    assert "5 image queries drawn at random from 14 images without replacement, seed 0" in sheet
    assert "a gold positive passes with yes or weak yes, a gold negative with weak no or no" in sheet
    assert row(sheet, "workers who submitted a HIT") == f"{len(judged.worker.cat.categories):,}"
    assert row(sheet, "submitted HITs") == row(sheet, "… paid, answers used")
    seen = int((judged.role == list(PairRole).index(PairRole.GOLD_NEGATIVE)).sum())
    (golds,) = [line for line in sheet.splitlines() if line.startswith("| gold negatives |")]
    assert f" of {seen:,} (" in golds
    assert "practice money" in sheet
    assert "Past work" not in sheet


@pytest.mark.slow
def test_counts_of_workers_say_who_is_counted(tmp_path, tmp_path_factory):
    """One of three workers left no answer: the sheet says 3 and 2, and the manifest and Croissant, which 2."""
    settings = copy_of(kept_project(tmp_path_factory), tmp_path / "p")
    first = "(SELECT id FROM assignment WHERE worker_id = (SELECT min(worker_id) FROM assignment))"
    in_pipeline(settings, f"DELETE FROM judgement WHERE assignment_id IN {first}")
    sheet = sheet_of(settings)
    release = settings.project / "release"
    people = json.loads((release / "croissant.json").read_text())["rai:annotatorDemographics"]

    assert row(sheet, "workers who submitted a HIT") == "3"
    assert row(sheet, "… with answers in `judgements.parquet`") == "2"
    assert json.loads((release / "manifest.json").read_text())["counts"]["workers"] == 2
    assert people[0].startswith("Unknown: 2 workers with answers in judgements.parquet; ")


@pytest.mark.slow
def test_no_command_writes_its_file_into_a_release(project):
    """Reports, tables, backups and keys; the release verifies as before."""
    release = project / "release"
    for name in ("release", "other"):
        sheet_of(project_settings(project), name)
    before = sorted(release.iterdir())
    commands = (
        ("report", "--out", release / "report.html"),
        ("report", "--methods", release / "methods.md"),
        ("evaluate", "--csv", release / "scores.csv"),
        ("analyse", "workers", "--csv", release / "tables"),
        ("workers", "--csv", release / "workers.csv"),
        ("db", "backup", release / "backup"),
        ("crowd", "keys", "--sandbox", "--export", release / "keys"),
        ("compare", project / "other", release, "--differences", release / "differences.csv"),
    )

    for command in commands:
        refused = mitl(*map(str, command), "--project", project)
        assert refused.status == 1 and "lies in a release" in refused.error, command
    for made in (("init", str(release / "p"), "--dataset", "scenes"), ("demo", str(release / "p"))):
        refused = mitl(*made)
        assert refused.status == 1 and "lies in a release" in refused.error, made
    assert sorted(release.iterdir()) == before
    assert verify_release(release).differences == ()


@pytest.mark.slow
def test_agreement_is_the_same_in_release_sheet_and_report(project):
    """Alpha from the overlap, with its interval, rounded for each reader."""
    settings = project_settings(project)
    sheet = sheet_of(settings)
    manifest = json.loads((settings.project / "release" / "manifest.json").read_text())
    found = manifest["counts"]["agreement"]
    counts = report(settings, settings.project / "report.html").counts
    page = (settings.project / "report.html").read_text()

    assert found["pairs"] > 10
    assert f"ordinal: {found['alpha']:.3f} (95 % bootstrap interval {found['alpha_low']:.3f} to" in sheet
    assert counts["alpha"] == pytest.approx(found["alpha"], abs=1e-4)
    assert f"95 % interval {counts['alpha_low']:.2f} to {counts['alpha_high']:.2f}" in page


@pytest.mark.slow
def test_pay_is_held_against_the_floor_over_times_that_can_be(tmp_path, tmp_path_factory):
    """Live: three workers, one of them under $12.00 an hour; a claim beyond the clock counts as the clock has it."""
    settings = copy_of(kept_project(tmp_path_factory), tmp_path / "p")
    sheet = sheet_of(settings)

    assert row(sheet, "rewards paid") == "$6.00"
    assert row(sheet, "bonuses paid") == "none"
    under = row(sheet, "workers paid less than the floor of $12.00 an hour, as set at release")
    assert under == "66.7 % of 3"
    in_pipeline(settings, "UPDATE assignment SET accepted_at = submitted_at - 10000000")
    shorter = sheet_of(settings, "shorter")
    assert row(shorter, "median active time a HIT") == "10 s"
    assert (
        row(shorter, "workers paid less than the floor of $12.00 an hour, as set at release") == "0.0 % of 3"
    )
    report(settings, settings.project / "report.html")
    page = (settings.project / "report.html").read_text()
    assert "0 of 3 under the floor" in page
    assert "no more than that counts" in page


def test_without_shared_pairs_the_sheet_says_why_there_is_no_alpha():
    """One answer on each pair shows nothing about agreement."""
    once = [Judgement(Pair(1, n), "v", Label.YES) for n in range(1, 4)]
    same = [Judgement(Pair(1, 1), "w", Label.YES)]
    other = [Judgement(Pair(1, 1), "w", Label.WEAK_YES)]

    assert "cannot be estimated: no item has answers of two people." in sheet_with(once)
    assert "cannot be estimated: all answers are the same" in sheet_with(once + same)
    assert "ordinal: 0.000 (too few pairs for an interval), from 2 usable answers" in sheet_with(once + other)


def test_agreement_of_answers_without_names_is_called_too_low():
    """Two equal answers of a file that names nobody may have been read as one."""
    work = PastWork("b1", (("mturk_parsed", 9),), submissions=9, workers=2)
    named = PastWork("b1", (("batch_csv", 9),), submissions=9, workers=2)
    twice = [Judgement(Pair(1, 1), "v", Label.YES), Judgement(Pair(1, 1), "w", Label.WEAK_YES)]
    shared = replaced(world(), judgements=judgement_frame(twice))
    sheets = [
        release_files(replaced(shared, origins=Origins(past_work=(one,))))[0]["datasheet.md"].decode()
        for one in (work, named)
    ]

    assert [("people agreed more than this says" in sheet) for sheet in sheets] == [True, False]


def test_queries_that_were_not_drawn_are_said_to_be_chosen():
    """All, drawn, or listed by the makers."""
    draws = (QueryDraw(Direction.I2T, 5, 5, None), QueryDraw(Direction.T2I, 1, 30, None))
    origins = Origins(runs=(ProposalRun(("clip",), 5, 25, draws),))
    sheet = release_files(world(origins=origins))[0]["datasheet.md"].decode()

    assert "clip: 5 image queries (all there are) and 1 caption query of 30 captions, chosen by" in sheet


@given(JUDGEMENTS, st.randoms())
def test_agreement_does_not_depend_on_the_order_of_rows(records, random):
    """Alpha equals that of the counts of each person's best answer; shares count unanimous pairs."""
    shuffled = list(records)
    random.shuffle(shuffled)
    found = pair_agreement(judgement_frame(records))

    assert pair_agreement(judgement_frame(shuffled)) == found
    best = {}
    for one in records:
        if one.usable and one.outcome == "answered" and one.label and one.role.is_asked:
            key = (one.pair, one.worker)
            best[key] = min(best.get(key, 3), one.label.code - 1)
    counts = {}
    for (pair, _), label in best.items():
        counts.setdefault(pair, [0, 0, 0, 0])[label] += 1
    several = [line for line in counts.values() if sum(line) > 1]
    assert found.alpha == count_alpha(np.array(several, np.int64).reshape(-1, 4))
    assert found.same_label == sum(max(line) == sum(line) for line in several)
    assert found.same_side == sum(sum(line[:2]) in (0, sum(line)) for line in several)


def test_texts_are_a_column_only_where_they_are_asked_for():
    """Scrubbed, in an order that says nothing, described by README and Croissant, and told in the sheet."""
    data = world()
    told = with_texts(data.judgements, ["it is red", f"I am {ID}", "mail me@x.org", "it is red"])
    judgements, scan = scrubbed_columns(told, [ID])
    plain, shown = release_files(data)[0], release_files(replaced(data, judgements=judgements, texts=scan))[0]

    assert "text" not in pq.read_schema(as_file(plain["judgements.parquet"])).names
    texts = pq.read_table(as_file(shown["judgements.parquet"]))["text"].to_pylist()
    assert sorted(text for text in texts if text) == [
        f"I am {MARK}",
        "it is red",
        "it is red",
        f"mail {MARK}",
    ]
    assert (scan.texts, scan.changed, scan.removed) == (4, 2, {Removed.ID: 1, Removed.EMAIL: 1})
    assert (
        "1 id of a worker, an assignment or a HIT and 1 e-mail address in 2 texts"
        in shown["datasheet.md"].decode()
    )
    assert "column `text`" in shown["README.md"].decode()
    assert b"judgements/text" in shown["croissant.json"] and b"judgements/text" not in plain["croissant.json"]
    backwards = with_texts(data.judgements, ["it is red", f"I am {ID}", "mail me@x.org", "it is red"]).take(
        np.arange(len(data.judgements))[::-1]
    )
    again, _ = scrubbed_columns(backwards, [ID])
    assert release_files(replaced(data, judgements=again, texts=scan))[0] == shown


def test_the_privacy_check_reads_texts_too(tmp_path):
    """An id that no scan took is found in the column, and the line says what to do."""
    data = world()
    told = replaced(data, judgements=with_texts(data.judgements, [f"I am {ID}"]), texts=TextScan(1, 0, {}))

    with pytest.raises(ReleaseError, match=r"judgements.parquet would hold .* without --with-texts"):
        write_release(tmp_path / "r", told, private_ids={"worker": [ID]})
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
@pytest.mark.thorough(but=("sqlite",))
def test_texts_come_from_the_database_and_pass_the_privacy_check(project, tmp_path, engine_url):
    """On both engines: a worker's own id, an address and a plain remark; the check finds nothing in what is left."""
    shutil.copytree(project, tmp_path / "p")
    settings = project_settings(tmp_path / "p", db_url=engine_url)
    backup(project_settings(project), tmp_path / "dump", only="pipeline")
    restore(settings, tmp_path / "dump", only="pipeline")
    with open_database(settings.db_url, read_only=True) as session:
        worker = columns.judgement_columns(session, SANDBOX)["worker"].cat.categories[0]
    remarks = ["plain remark", f"i am {worker.lower()}", "call 555 123 4567"]
    in_pipeline(
        settings,
        *(
            "INSERT INTO rationale (judgement_id, kind, value) SELECT j.id, 'text', "
            f"'{remark}' FROM judgement j JOIN assignment a ON a.id = j.assignment_id JOIN hit_item i ON "
            f"i.hit_id = a.hit_id AND i.place = j.place WHERE i.role = 'candidate' ORDER BY j.id LIMIT 1 OFFSET {n}"
            for n, remark in enumerate(remarks)
        ),
    )

    result = build_dataset(
        settings, tmp_path / "r", options=ReleaseOptions(with_texts=True), check_privacy=True
    )

    texts = pq.read_table(tmp_path / "r" / "judgements.parquet")["text"].to_pylist()
    assert sorted(text for text in texts if text) == [f"call {MARK}", f"i am {MARK}", "plain remark"]
    assert result.counts["texts"] == {"texts": 3, "texts_changed": 2, "removed": {"id": 1, "phone": 1}}
    again = build_dataset(
        settings, tmp_path / "r", options=ReleaseOptions(with_texts=True), check_privacy=True
    )
    assert again.status == "nothing_to_do"


@pytest.mark.slow
def test_past_work_is_told_apart(project, tmp_path):
    """A CSV in the official layout, read back: its own section, and no claim about who its workers were."""
    copy = tmp_path / "p"
    shutil.copytree(project, copy)
    settings = project_settings(copy)
    build_dataset(settings, copy / "first", SANDBOX)
    imported = tmp_path / "q"
    make_world(imported, n_images=14)
    ok("harvest", "--from", copy / "first" / "mturk_parsed.csv", "--sandbox", "--project", imported)

    sheet = sheet_of(project_settings(imported), environment=Environment.SANDBOX)

    assert "### Past work" in sheet
    assert "CSV in ECCV Caption's layout (" in sheet
    assert "figures about workers say nothing of these answers" in sheet
    assert "More than a fifth of the answers" not in sheet
    assert "The files of past work say nothing of controls" in sheet
    assert "The files of past work say which machine annotator proposed which pair" in sheet
    assert "Each machine annotator ranked" not in sheet
    assert "Nobody worked on pages that were posted for this release." in sheet
    assert "no machine annotator proposed and no past work asked about were never asked" in sheet


def sheet_with(records):
    """The datasheet of a release of these judgements."""
    data = replaced(world(), judgements=judgement_frame(records))
    return release_files(data)[0]["datasheet.md"].decode()


def with_texts(judgements, texts):
    """The first judgements on candidates with these texts."""
    column = np.full(len(judgements), None, object)
    column[np.flatnonzero(~is_gold(judgements))[: len(texts)]] = texts
    return judgements.assign(text=pd.Categorical(column, sorted(set(texts))))


def as_file(content):
    """The bytes to be read."""
    return io.BytesIO(content)
