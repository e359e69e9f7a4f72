"""Batches of submissions brought in from files: our own HITs' as a harvest would, others' by a mapping of columns."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from cli_kit import fails, ok
from harvest_kit import in_pipeline
from sqlalchemy import text
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.result_file import kept_rows
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import answers, hits, imports, items, judgements, open_work, parses, proposals
from mitl.errors import DatasetError
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Decision, Direction, Environment, HitState, JudgementSource, Label, Outcome, PairRole
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.harvesting import deriving
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.operating.backup import verify
from mitl.stages.past_work.importing import ImportOptions, import_results
from mitl.stages.reporting.status import status

LIVE = Environment.LIVE
FORM = "%a %b %d %H:%M:%S %Z %Y"


@pytest.fixture(scope="module")
def answered(tmp_path_factory) -> tuple[Path, list[dict[str, str]], list[dict[str, str]]]:
    """A project whose HITs were answered and not harvested, and two files of the answers."""
    settings = make_world(tmp_path_factory.mktemp("own") / "p", n_images=20)
    run_propose(settings)
    run_publish(settings, template="pairs-rationale")
    simulate(settings, SANDBOX, population="careful")
    listed = []
    with open_endpoint(settings, SANDBOX) as endpoint:
        client = endpoint.client()
        for hit in client.list_hits():
            listed += [(hit, one) for one in client.list_assignments(hit.hit_id)]
    listed.sort(key=lambda found: found[1].submitted_at)
    common = [
        {
            "HITId": hit.hit_id,
            "AssignmentId": one.assignment_id,
            "WorkerId": one.worker_id,
            "AssignmentStatus": one.status,
            "AcceptTime": one.accepted_at.strftime(FORM),
            "SubmitTime": one.submitted_at.strftime(FORM),
        }
        for hit, one in listed
    ]
    by_document = [{**row, "Answer": one.answer_xml} for row, (_, one) in zip(common, listed, strict=True)]
    names = sorted({name for _, one in listed for name, _ in answer_fields(one.answer_xml)})
    by_column = [
        {
            **row,
            "Title": 'Which "fit"?',
            "Reward": "$1.00",
            "RequesterAnnotation": hit.annotation or "",
            **dict.fromkeys((f"Answer.{name}" for name in names), ""),
            **_joined(one.answer_xml),
        }
        for row, (hit, one) in zip(common, listed, strict=True)
    ]
    return settings.project, by_column, by_document


def _joined(xml: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, value in answer_fields(xml):
        found.setdefault(f"Answer.{name}", []).append(value)
    return {name: "|".join(values) for name, values in found.items()}


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    """The rows as the requester site writes them, packed where the name says so."""
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, list(rows[0]), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    data = sink.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def copy_of(project: Path, folder: Path) -> Settings:
    """The project again."""
    shutil.copytree(project, folder)
    return replace(load_settings(folder, environ={}), endpoint=None)


def what_is_known(settings: Settings) -> tuple[Counter, Counter]:
    """Judgements with rationale and usability; submissions with their decisions."""
    with open_database(settings.db_url, read_only=True) as session:
        stored = judgements.judgements(session, SANDBOX)
        rows = answers.assignments(session, SANDBOX)
        texts = {
            (row.key, one.place): one.record.text
            for row in rows
            for one in judgements.judgements_of(session, row.id)
        }
    names = {row.id: row.key for row in rows}
    return (
        Counter(
            (
                (names[one.assignment_id], one.place),
                replace(one.record, submitted_at=None),  # the site's files know no fractions of a second
                texts.get((names[one.assignment_id], one.place)),
            )
            for one in stored
        ),
        Counter((row.key, row.hit_id, row.decision) for row in rows),
    )


@pytest.mark.parametrize("kind", ["site", "api"])
def test_our_own_submissions_from_a_file_are_as_if_harvested(tmp_path, answered, kind):
    """Same judgements, decisions and ledger; the harvest that follows fetches nothing and pays all."""
    project, by_column, by_document = answered
    harvested, imported = copy_of(project, tmp_path / "a"), copy_of(project, tmp_path / "b")
    name, rows = ("batch.csv.gz", by_column) if kind == "site" else ("rows.csv", by_document)
    file = write(tmp_path / name, rows)

    harvest(harvested, SANDBOX)
    result = import_results(imported, file, SANDBOX)
    again = import_results(imported, file, SANDBOX)
    before = what_is_known(imported)
    paid = harvest(imported, SANDBOX)

    assert (result.status, again.status) == ("done", "nothing_to_do")
    assert result.counts["own"] == result.counts["fetched"] == len(rows)
    assert before == what_is_known(imported) == what_is_known(harvested)
    assert paid.counts["fetched"] == 0
    assert paid.counts["approved"] > 0
    ledgers = [status(one, SANDBOX).counts["paid_cents"] for one in (harvested, imported)]
    assert ledgers[0] == ledgers[1] > 0


def test_what_a_file_says_was_decided_of_our_own_work_since_is_booked(tmp_path, answered):
    """A server that was switched off paid what had waited; its last file says so of submissions that are here."""
    project, by_column, _ = answered
    settings = copy_of(project, tmp_path / "p")
    import_results(settings, write(tmp_path / "1.csv", by_column), SANDBOX)
    assert status(settings, SANDBOX).counts["paid_cents"] == 0
    ends = ["Rejected", *["Approved"] * (len(by_column) - 1)]
    rows = [row | {"AssignmentStatus": end} for row, end in zip(by_column, ends, strict=True)]

    last = import_results(settings, write(tmp_path / "2.csv", rows), SANDBOX)

    assert last.status == "done"
    assert f"{len(rows)} were here already, {len(rows)} of them decided since" in last.lines[0]
    with open_database(settings.db_url, read_only=True) as session:
        stored_rows = answers.assignments(session, SANDBOX)
        (batch,) = hits.batches(session)
    assert Counter(row.status for row in stored_rows) == {"Approved": len(rows) - 1, "Rejected": 1}
    assert status(settings, SANDBOX).counts["paid_cents"] == (len(rows) - 1) * batch.reward_cents
    assert verify(settings).refusal is None


def test_no_cell_of_our_own_rows_is_lost_and_documents_stay_byte_for_byte(tmp_path, answered):
    """The row stands behind the answers, which the parser passes over; `--reparse` gives the same again."""
    project, by_column, by_document = answered
    settings = copy_of(project, tmp_path / "p")
    half = len(by_column) // 2
    import_results(settings, write(tmp_path / "one.csv", by_column[:half]), SANDBOX)
    import_results(settings, write(tmp_path / "two.csv", by_document[half:]), SANDBOX)
    before = what_is_known(settings)

    harvest(settings, SANDBOX, reparse=True)

    with open_database(settings.db_url, read_only=True) as session:
        documents = {
            row.mturk_assignment_id: parses.raw(session, [row.id])[0].raw_xml
            for row in answers.assignments(session, SANDBOX)
        }
    assert what_is_known(settings) == before
    for row in [*by_column[:half], *by_document[half:]]:
        document = documents[row["AssignmentId"]]
        assert kept_rows(document).cells == row
        assert document.startswith(row.get("Answer", "<?xml"))


def test_a_hit_whose_reply_was_lost_is_known_by_its_annotation(tmp_path, answered):
    """A file names the HIT, so its submissions are stored and it is adopted."""
    project, by_column, _ = answered
    settings = copy_of(project, tmp_path / "p")
    in_pipeline(
        settings,
        "UPDATE hit SET state = 'sending', mturk_hit_id = NULL",
        "UPDATE journal SET state = 'sending', reply = NULL WHERE kind = 'create'",
    )

    import_results(settings, write(tmp_path / "b.csv", by_column), SANDBOX)

    with open_database(settings.db_url, read_only=True) as session:
        known = {hit.mturk_hit_id for hit in hits.hits(session, SANDBOX)}
        states = session.execute(text("SELECT DISTINCT state FROM journal WHERE kind = 'create'")).scalars()
        assert list(states) == ["done"]
    assert known == {row["HITId"] for row in by_column}


def test_files_of_other_hits_of_this_project_are_refused(tmp_path, answered):
    """Another environment, a HIT that the database lacks, and one that it knows by another id."""
    project, by_column, _ = answered
    settings = copy_of(project, tmp_path / "p")
    ghost = {**by_column[0], "RequesterAnnotation": f"mitl1:{settings.project_id}:b9:1:1", "HITId": "NEW"}
    other = {**by_column[0], "HITId": "3OTHER"}

    with pytest.raises(DatasetError, match="which is on sandbox here; say --sandbox"):
        import_results(settings, write(tmp_path / "1.csv", by_column), LIVE)
    with pytest.raises(
        DatasetError, match="line 2 is of HIT b9:1:1 of this project, but its database has none"
    ):
        import_results(settings, write(tmp_path / "2.csv", [ghost]), SANDBOX)
    with pytest.raises(DatasetError, match=r"line 2 says that HIT b1:\d+:1 is 3OTHER"):
        import_results(settings, write(tmp_path / "3.csv", [other]), SANDBOX)
    assert what_is_known(settings) == (Counter(), Counter())


MAP = """
image = {column = "Input.url{place}", pattern = '(\\d+)\\.jpg'}
caption_text = "Input.text{place}"
label = "Answer.q{place}"
[labels]
"1" = "yes"
"4" = "no"
"?" = "skipped"
"""
PAIRS = [("1", "7", "a cat"), ("2", "8", "a dog"), ("3", "9", "a fox")]


def foreign(worker: str, q1: str, q2: str, *, hit: str = "H1", status: str = "Approved") -> dict[str, str]:
    """A row of a batch that shows two pairs a HIT."""
    return {
        "HITId": hit,
        "AssignmentId": f"{hit}-{worker}",
        "WorkerId": worker,
        "AssignmentStatus": status,
        "AcceptTime": "Sat Oct 07 03:51:58 PDT 2017",
        "SubmitTime": "Sat Oct 07 03:53:23 PDT 2017",
        "Reward": "$0.15",
        "MaxAssignments": "3",
        "RequesterAnnotation": "BatchId:1;",
        "Input.url1": "http://x/1.jpg",
        "Input.text1": "a cat",
        "Input.url2": "http://x/2.jpg",
        "Input.text2": "a dog",
        "Answer.q1": q1,
        "Answer.q2": q2,
    }


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A project on a table of three pairs, entered."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{image},{caption},{words}\n" for image, caption, words in PAIRS)
    Path("pairs.csv").write_text("image_id,caption_id,caption\n" + rows, encoding="utf-8")
    Path("map.toml").write_text(MAP, encoding="utf-8")
    ok("init", "--dataset", "table", "--captions", "pairs.csv")
    return tmp_path


def stored(url: str | None = None) -> list[tuple[str, str, Label | None, Outcome, bool]]:
    """Worker, caption's id, label, outcome, usable."""
    with open_database(url or load_settings(Path.cwd(), environ={}).db_url, read_only=True) as session:
        found = judgements.judgements(session, LIVE)
        assert {one.record.source for one in found} <= {JudgementSource.IMPORT}
        return [
            (
                one.record.worker,
                one.record.pair.caption_id,
                one.record.label,
                one.record.outcome,
                one.record.usable,
            )
            for one in found
        ]


def test_a_foreign_batch_is_judgements_of_past_work(folder):
    """Approved work counts and rejected work does not; the pairs need not be asked; nothing is paid or awaited."""
    rows = [foreign("W1", "1", "4"), foreign("W2", "1", "?"), foreign("W3", "4", "1", status="Rejected")]
    file = write(folder / "b.csv", rows)

    first = ok("harvest", "--from", file, "--columns", "map.toml", "--json").json
    second = ok("harvest", "--from", file, "--columns", "map.toml", "--json").json

    assert (first["status"], second["status"]) == ("done", "nothing_to_do")
    assert first["counts"] | {"environment": "live"} == {
        "environment": "live",
        "fetched": 3,
        "own": 0,
        "hits": 1,
        "judgements": 6,
        "pairs": 2,
        "proposals": 0,
        "left_out": 0,
        "unknown": 0,
    }
    answered, skipped = Outcome.ANSWERED, Outcome.SKIPPED
    assert stored() == [
        ("W1", 1, Label.YES, answered, True),
        ("W1", 2, Label.NO, answered, True),
        ("W2", 1, Label.YES, answered, True),
        ("W2", 2, None, skipped, False),
        ("W3", 1, Label.NO, answered, False),
        ("W3", 2, Label.YES, answered, False),
    ]
    settings = load_settings(folder, environ={})
    with open_database(settings.db_url, read_only=True) as session:
        (batch,) = hits.batches(session)
        assert (batch.source, batch.reward_cents, batch.assignments) == (JudgementSource.IMPORT, 15, 3)
        assert [hit.state for hit in hits.hits(session, LIVE)] == [HitState.CLOSED]
        decisions = [row.decision for row in answers.assignments(session, LIVE)]
        assert decisions == [Decision.APPROVE, Decision.APPROVE, Decision.REJECT]
        assert len(open_work.usable_workers(session, LIVE)) == 2
        assert [row.rows for row in imports.imports(session).values()] == [3]
    assert ok("harvest", "--json").json["status"] == "nothing_to_do"
    assert ok("status", "--json").json["counts"]["paid_cents"] == 0
    assert ok("report", "--project", folder, "--json").json["status"] == "done"


def test_controls_of_a_foreign_batch_check_workers_and_make_no_positive(folder):
    """A role says which pairs were controls; one that the mapping has no word for stops the file."""
    mapping = MAP.replace("[labels]", 'role = "Input.kind{place}"\n[labels]')
    rows = [
        foreign(worker, "4", "1") | {"Input.kind1": "check", "Input.kind2": ""} for worker in ("W1", "W2")
    ]
    file = write(folder / "b.csv", rows)
    Path("map.toml").write_text(mapping, encoding="utf-8")
    assert (
        "[roles] has no word for 'check' (2); map each to candidate, gold_positive or gold_negative"
        in fails(1, "harvest", "--from", file, "--columns", "map.toml")
    )
    Path("map.toml").write_text(mapping + '[roles]\ncheck = "gold_negative"\n', encoding="utf-8")

    ok("harvest", "--from", file, "--columns", "map.toml")
    ok("build-dataset", "--out", "r", "--recipe", "paper")

    counts = json.loads(Path("r/manifest.json").read_text())["counts"]
    assert (counts["positives"], counts["judgements"], counts["pairs_judged"]) == (1, 2, 1)
    sheet = Path("r/datasheet.md").read_text()
    assert "gold negatives | 1 | 2 of 2 (100.0 %)" in sheet
    assert "The files of past work say which pairs were controls" in sheet
    settings = load_settings(folder, environ={})
    with open_database(settings.db_url, read_only=True) as session:
        controls = [one for one in judgements.judgements(session, LIVE) if one.record.role.is_gold]
    assert [(one.place, one.record.role, one.record.label) for one in controls] == [
        (1, PairRole.GOLD_NEGATIVE, Label.NO)
    ] * 2


def test_a_later_download_of_the_same_batch_adds_what_is_new(folder):
    """Rows that are here already change nothing; a new worker's answers join their HIT."""
    rows = [foreign("W1", "1", "4"), foreign("W2", "4", "4"), foreign("W2", "1", "1", hit="H2")]
    ok("harvest", "--from", write(folder / "1.csv", rows[:1]), "--columns", "map.toml")

    found = ok("harvest", "--from", write(folder / "2.csv", rows), "--columns", "map.toml", "--json").json

    assert (found["counts"]["fetched"], found["counts"]["hits"]) == (2, 1)
    assert [row[:3] for row in stored()] == [
        ("W1", 1, Label.YES),
        ("W1", 2, Label.NO),
        ("W2", 1, Label.NO),
        ("W2", 2, Label.NO),
        ("W2", 1, Label.YES),
        ("W2", 2, Label.YES),
    ]
    assert [row[4] for row in stored()][-2:] == [False, False], "one worker's second answer on a pair"

    turned = ok("harvest", "--from", write(folder / "3.csv", rows[::-1]), "--columns", "map.toml")

    assert "nothing to do: the 3 submissions of 3.csv came before, into batch b" in turned.out
    assert turned.err == ""
    assert len(stored()) == 6


def test_a_datasheet_names_each_file_under_every_batch_that_it_answers(folder):
    """A second file has another worker on the first one's HIT, and a HIT of its own."""
    first = write(folder / "a.csv", [foreign("W1", "1", "4")])
    second = write(folder / "b.csv", [foreign("W2", "1", "4"), foreign("W3", "4", "1", hit="H2")])
    for file in (first, second):
        ok("harvest", "--from", file, "--columns", "map.toml")

    ok("build-dataset", "--out", "r")

    sheet = Path("r/datasheet.md").read_text()
    csv = "a batch CSV of the requester site"
    assert (
        f"Batch b1 was not posted for this release but read from {csv} (1 row) and {csv} (2 rows): 2 sub"
        in sheet
    )
    assert (
        f"Batch b2 was not posted for this release but read from {csv} (2 rows): 1 submission of 1" in sheet
    )


def test_what_was_decided_after_the_first_download_holds(folder):
    """Work that was undecided counts until a later file says that it was rejected; what was approved stays so."""
    rows = [foreign("W1", "1", "4", status="Submitted"), foreign("W2", "1", "1")]
    first = ok("harvest", "--from", write(folder / "1.csv", rows), "--columns", "map.toml")
    assert [row[4] for row in stored()] == [True] * 4
    assert "1 submissions count although the file does not say that they were approved" in first.err
    later = [row | {"AssignmentStatus": "Rejected"} for row in rows]

    again = ok("harvest", "--from", write(folder / "2.csv", later), "--columns", "map.toml")

    assert "2 of the submissions were here already, 1 of them decided since" in again.out
    assert [row[4] for row in stored()] == [False, False, True, True]


def test_downloads_that_come_in_another_order_take_nothing_back(folder):
    """An approval is final, and told once; a rejection may be overridden later."""

    def bring(name, *statuses):
        rows = [foreign(f"W{n}", "1", "4", status=status) for n, status in enumerate(statuses, 1)]
        return ok("harvest", "--from", write(folder / name, rows), "--columns", "map.toml").out

    bring("1.csv", "Submitted", "Submitted")
    assert "2 of them decided since" in bring("2.csv", "Approved", "Rejected")
    shown = [ok("review", "show", number, "--live").out for number in (1, 2)]
    assert not any("not_decided" in text for text in shown), "it was decided since"
    again = bring("3.csv", "Approved", "Rejected", "Approved")
    assert "2 of the submissions were here already" in again and "decided since" not in again
    assert [row[4] for row in stored()] == [True, True, False, False, True, True]

    last = bring("4.csv", "Rejected", "Approved", "Rejected")

    assert "1 of them decided since" in last
    assert [row[4] for row in stored()] == [True] * 6
    ok("harvest", "--reparse", "--live")
    assert [row[4] for row in stored()] == [True] * 6


def test_other_work_under_ids_that_came_before_is_refused(folder):
    """Files that each count their submissions from 1 do not pass for one another; nothing of the second is dropped."""
    ok("harvest", "--from", write(folder / "1.csv", [foreign("W1", "1", "4")]), "--columns", "map.toml")
    rows = [foreign("W1", "1", "4") | {"Input.url2": "http://x/3.jpg"}, foreign("W2", "1", "4")]

    told = fails(1, "harvest", "--from", write(folder / "2.csv", rows), "--columns", "map.toml")

    assert "'2.csv' gives submission H1-W1 of worker W1 other answers than '1.csv'" in told
    assert len(stored()) == 2


def test_practice_in_the_sandbox_keeps_no_past_work_from_the_live_project(folder):
    """The same file is brought into either environment, once into each."""
    file = write(folder / "b.csv", [foreign("W1", "1", "4", status="approved")])
    words = ("harvest", "--from", file, "--columns", "map.toml")
    assert "into batch b1 of the sandbox: 2 judgements" in ok(*words, "--sandbox").out

    runs = [ok(*words, where).out for where in ("--live", "--live", "--sandbox")]
    hints = [run.splitlines()[-1] for run in runs]
    assert hints[1:] == [f"next: mitl build-dataset{of} --out DIR" for of in ("", " --sandbox")]

    assert "into batch b2: 2 judgements" in runs[0]
    assert ["was brought in" in run for run in runs] == [False, True, True]
    assert [row[4] for row in stored()] == [True, True]


def test_a_rejection_counts_as_one_however_it_is_written(folder):
    """Tables of other tools say rejected, or REJECTED."""
    rows = [
        foreign(f"W{n}", "1", "4", status=word) for n, word in enumerate(("rejected", "REJECTED", "approved"))
    ]
    ok("harvest", "--from", write(folder / "b.csv", rows), "--columns", "map.toml")

    assert [row[4] for row in stored()] == [False] * 4 + [True] * 2


def test_a_corrected_mapping_reads_the_same_file_again(folder):
    """The rows are kept, so labels that were mapped the wrong way round are put right; `--reparse` keeps that."""
    gone = foreign("W2", "1", "1", hit="H2") | {"Input.url1": "http://x/y/3.jpg", "Input.text1": "a fox"}
    file = write(folder / "b.csv", [foreign("W1", "1", "4"), gone | {"Input.url2": "", "Answer.q2": ""}])
    ok("harvest", "--from", file, "--columns", "map.toml")
    assert [row[2] for row in stored()] == [Label.YES, Label.NO, Label.YES]
    right = MAP.replace('"1" = "yes"', '"1" = "weak_no"').replace("(\\d+)", "x/(\\d+)")
    Path("right.toml").write_text(right, encoding="utf-8")

    again = ok("harvest", "--from", file, "--columns", "right.toml", "--skip-unknown")
    ok("harvest", "--reparse")

    assert "read again 1 submission" in again.out
    assert [row[2] for row in stored()] == [Label.WEAK_NO, Label.NO]


def test_a_corrected_mapping_names_the_same_submissions_anew(folder):
    """Workers, assignments and decisions stood in other columns: no answer comes twice, whichever ids change places."""
    cells = [("a", "b", "Approved", "yes"), ("b", "a", "Approved", "no"), ("a", "c", "Rejected", "no")]
    file = write(folder / "b.csv", [dict(zip(("x", "y", "is", "q"), row, strict=True)) for row in cells])
    pair = 'label = "q"\nimage = {value = "1"}\ncaption = {value = "7"}\n'
    for name, ids in (("wrong", "xy"), ("right", "yx")):
        columns = 'assignment = "{}"\nworker = "{}"\n'.format(*ids) + pair
        columns += 'status = "is"' if name == "right" else 'keep = ["is"]'
        Path(f"{name}.toml").write_text(columns, encoding="utf-8")
    for where in ("--sandbox", "--live"):
        ok("harvest", "--from", file, "--columns", "wrong.toml", where)

    again = ok("harvest", "--from", file, "--columns", "right.toml", "--sandbox")

    assert (
        "read again 3 submissions by 2 workers from b.csv into batch b1 of the sandbox: 3 judg" in again.out
    )
    assert [(row[0], row[2], row[4]) for row in stored()] == [
        ("a", Label.YES, True),
        ("b", Label.NO, True),
        ("a", Label.NO, False),
    ]
    assert verify(load_settings(folder, environ={})).refusal is None
    late = write(folder / "late.csv", [dict(zip(("x", "y", "is", "q"), cells[2], strict=True))])
    ok("harvest", "--from", late, "--columns", "wrong.toml")
    told = fails(1, "harvest", "--from", file, "--columns", "wrong.toml")
    assert "holds submission a of worker c, which another file brought in; restore" in told


def test_a_corrected_mapping_holds_in_both_environments(folder):
    """A file is read one way, wherever it was brought in."""
    file = write(folder / "b.csv", [foreign("W1", "1", "4")])
    for where in ("--sandbox", "--live"):
        ok("harvest", "--from", file, "--columns", "map.toml", where)
    Path("right.toml").write_text(MAP.replace('"1" = "yes"', '"1" = "weak_no"'), encoding="utf-8")

    ok("harvest", "--from", file, "--columns", "right.toml", "--sandbox")

    assert [(row[2], row[4]) for row in stored()] == [(Label.WEAK_NO, True), (Label.NO, True)]


def test_a_page_of_more_pairs_than_are_told_apart_is_refused(folder, monkeypatch):
    """As where the column of HITs says the same in every row."""
    monkeypatch.setattr(deriving, "MAX_PLACES", 1)
    file = write(folder / "b.csv", [foreign("W1", "1", "4")])

    told = fails(1, "harvest", "--from", file, "--columns", "map.toml")

    assert "a HIT of past work would hold 2 pairs, and the most is 1; if its column" in told
    assert stored() == []


def test_what_a_wrong_mapping_noticed_goes_with_it(folder):
    """What another reading still finds stays, and what the file says of times and decisions; an odd reward is none."""
    row = foreign("W1", "1", "", status="Submitted") | {
        "SubmitTime": "soon",
        "Reward": "$99999999999999999999",
    }
    file = write(folder / "b.csv", [row])
    Path("wrong.toml").write_text('active_ms = "Input.text{place}"\n' + MAP, encoding="utf-8")
    noticed = []
    for mapping in ("wrong.toml", "map.toml"):
        ok("harvest", "--from", file, "--columns", mapping)
        with open_database(load_settings(folder, environ={}).db_url, read_only=True) as session:
            noticed.append(answers.finding_counts(session, LIVE))

    assert noticed == [
        {"bad_value": 2, "missing_answer": 1, "not_decided": 1},
        {"bad_value": 1, "missing_answer": 1, "not_decided": 1},
    ]


def test_a_pair_that_stood_twice_on_a_page_is_kept_twice(folder):
    """The second time is a repeat, and one worker's second answer does not count."""
    row = foreign("W1", "1", "4") | {"Input.url2": "http://x/1.jpg", "Input.text2": "a cat"}
    ok("harvest", "--from", write(folder / "b.csv", [row]), "--columns", "map.toml")

    assert [(row[1], row[2], row[4]) for row in stored()] == [(1, Label.YES, True), (1, Label.NO, False)]


def test_a_text_that_several_captions_share_is_that_of_its_image_or_of_none(folder, monkeypatch):
    """Its image may be padded as COCO's names of files are; beside another image nobody can tell which is meant."""
    Path("two").mkdir()
    monkeypatch.chdir("two")
    Path("pairs.csv").write_text(
        "image_id,caption_id,caption\n1,7,a cat\n2,8,a dog\n3,9,a cat\n", encoding="utf-8"
    )
    ok("init", "--dataset", "table", "--captions", "pairs.csv")
    row = foreign("W1", "1", "4") | {"Input.url1": "http://x/000000000003.jpg", "Input.text2": "a cat"}
    words = ("harvest", "--from", write(folder / "b.csv", [row]), "--columns", folder / "map.toml")

    assert "image '2' with caption text 'a cat'" in fails(1, *words)
    ok(*words, "--skip-unknown")

    assert [(row[1], row[2]) for row in stored()] == [(3, Label.YES)]


def test_bad_files_and_mappings_change_nothing(folder):
    """Each stops with one line that says what to do; nothing of the file is stored."""
    rows = [foreign("W1", "1", "4"), foreign("W2", "2", "no idea")]
    unknown = foreign("W1", "1", "4") | {"Input.text2": "a bird"}
    cases = [
        (
            rows,
            None,
            "say in a file, with --columns MAP.toml, which column holds image, caption and label; it has",
        ),
        (rows, MAP, "[labels] has no word for '2' (1), 'no idea' (1); map each to yes"),
        (rows, MAP.replace("Answer.q{", "Answer.x{"), "no place has all of"),
        (
            rows,
            'image = "Input.u"\ncaption = "b"\nlabel = "c"',
            "names the column 'Input.u', which the file lacks",
        ),
        (rows, 'image = "Input.url1"', "does not say which column holds caption (or caption_text) and label"),
        (
            [row | {"mood": "fine"} for row in rows],
            MAP,
            "has the column 'mood', which its layout (batch_csv)",
        ),
        (
            [unknown],
            MAP,
            "answers in '7.csv' are about pairs that this project lacks, 1 in all: image '2' with caption text",
        ),
        ([rows[0] | {"WorkerId": ""}], MAP, "line 2 of '8.csv' has no WorkerId"),
        ([rows[0] | {"WorkerId": "a\x00b"}], MAP, "WorkerId is 'a\\x00b', which is not an id"),
        (
            [rows[0], rows[0] | {"Answer.q1": "4"}],
            MAP,
            "line 3 of '10.csv' repeats submission H1-W1 of line 2",
        ),
        ([{"image": "1", "label": "2"}], MAP, "has no layout that is known"),
        ([dict.fromkeys(rows[0], "")], MAP, "holds no submission"),
    ]
    for number, (content, mapping, message) in enumerate(cases, start=1):
        words = ["harvest", "--from", write(folder / f"{number}.csv", content)]
        if mapping is not None:
            Path("m.toml").write_text(mapping, encoding="utf-8")
            words += ["--columns", "m.toml"]
        assert message in fails(1, *words), number

    assert "add --from FILE" in fails(2, "harvest", "--skip-unknown")
    assert "give one of them" in fails(2, "harvest", "--from", "1.csv", "--reparse")
    assert stored() == []
    with open_database(load_settings(folder, environ={}).db_url, read_only=True) as session:
        assert (imports.imports(session), hits.batches(session)) == ({}, [])


def test_a_table_of_another_platform_is_read_when_its_ids_are_named(folder):
    """Any CSV with a submission's and a worker's id; HITs that nobody voted on are passed over."""
    table = [
        {"unit": "u1", "judge": "J1", "img": "1", "cap": "7", "vote": "yes", "zeit": "2020-01-01T00:00:00Z"},
        {"unit": "u2", "judge": "J2", "img": "1", "cap": "7", "vote": "no", "zeit": "soon"},
        {"unit": "", "judge": "", "img": "2", "cap": "8", "vote": "", "zeit": ""},
    ]
    Path("m.toml").write_text(
        'image = "img"\ncaption = "cap"\nlabel = "vote"\nassignment = "unit"\nworker = "judge"\nsubmitted = "zeit"\n',
        encoding="utf-8",
    )

    found = ok("harvest", "--from", write(folder / "t.csv", table), "--columns", "m.toml", "--json").json

    assert (found["counts"]["judgements"], found["counts"]["hits"]) == (2, 2)
    assert any("1 rows are of HITs that nobody had answered" in warning for warning in found["warnings"])
    with open_database(load_settings(folder, environ={}).db_url, read_only=True) as session:
        rows = [row.id for row in answers.assignments(session, LIVE)]
        noted = [one.detail for found in answers.findings_of(session, rows).values() for one in found]
    assert noted == ["time 'soon' cannot be read"]


def test_past_work_is_stored_alike_on_both_engines(folder, engine_url):
    """Odd characters in any cell are no trouble for either."""
    row = foreign("W1", "1", "4") | {"Answer.extra": "a\x00b\x0b<?mitl-rows ?>\ud7ff🙂"}
    ok("init", "--dataset", "table", "--captions", "pairs.csv", "--db", engine_url)

    done = ok(
        *("harvest", "--from", write(folder / "b.csv", [row]), "--columns", "map.toml", "--db", engine_url)
    )
    ok("harvest", "--reparse", "--db", engine_url)
    for told in ("into batch b2 of the sandbox", "was brought in before"):
        words = ("harvest", "--sandbox", "--from", "b.csv", "--columns", "map.toml", "--db", engine_url)
        assert told in ok(*words).out

    assert "2 judgements on 2 pairs" in done.out
    assert [found[2] for found in stored(engine_url)] == [Label.YES, Label.NO]
    with open_database(engine_url, read_only=True) as session:
        (submission,) = answers.assignments(session, LIVE)
        assert kept_rows(parses.raw(session, [submission.id])[0].raw_xml).cells == row


def test_a_run_that_dies_leaves_nothing_or_all(folder):
    """One transaction: before its commit nothing is stored; after it the next run settles what is left."""
    file = write(folder / "b.csv", [foreign("W1", "1", "4")])
    settings = load_settings(folder, environ={})
    engine = make_engine(settings.db_url)
    try:
        with engine.begin() as connection:
            connection.execute(
                text("CREATE TRIGGER stop BEFORE INSERT ON judgement BEGIN SELECT RAISE(ABORT, 'cut'); END")
            )
        assert "cut" in fails(1, "harvest", "--from", file, "--columns", "map.toml")
        with open_database(settings.db_url, read_only=True) as session:
            assert (imports.imports(session), hits.batches(session)) == ({}, [])
        with engine.begin() as connection:
            connection.execute(text("DROP TRIGGER stop"))
            connection.execute(
                text("CREATE TRIGGER stop BEFORE UPDATE ON judgement BEGIN SELECT RAISE(ABORT, 'cut'); END")
            )
        assert "cut" in fails(1, "harvest", "--from", file, "--columns", "map.toml")
        with engine.begin() as connection:
            connection.execute(text("DROP TRIGGER stop"))
    finally:
        engine.dispose()

    assert [row[4] for row in stored()] == [False, False]
    assert ok("harvest", "--from", file, "--columns", "map.toml", "--json").json["status"] == "nothing_to_do"
    assert [row[4] for row in stored()] == [True, True]


def _open_pairs(settings: Settings) -> object:
    return publish(settings, Campaign(SANDBOX), confirm=lambda _: False, dry_run=True).counts["pairs"]


def test_judged_pairs_are_not_asked_again(tmp_path):
    """A batch of past work closes the pairs that it answers, so that publish asks the others alone."""
    settings = make_world(tmp_path / "p", n_images=20)
    run_propose(settings)
    with open_database(settings.db_url, read_only=True) as session:
        pair = proposals.candidate_pairs(session, tuple(Direction))[0]
        images, captions = items.id_maps(session, items.dataset(session).id)
    names = ({id_: name for name, id_ in side.items()} for side in (images, captions))
    image, caption = (found[id_] for found, id_ in zip(names, (pair.image_id, pair.caption_id), strict=True))
    before = _open_pairs(settings)
    row = foreign("W1", "1", "4") | {"Input.url1": image, "Input.text1": caption}
    mapping = tmp_path / "m.toml"
    mapping.write_text(
        'image = "Input.url1"\ncaption = "Input.text1"\nlabel = "Answer.q1"\n[labels]\n1 = "no"\n',
        encoding="utf-8",
    )

    import_results(
        settings, write(tmp_path / "b.csv", [row]), SANDBOX, options=ImportOptions(columns=mapping)
    )

    assert _open_pairs(settings) == before - 1
