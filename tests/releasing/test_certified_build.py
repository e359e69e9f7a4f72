"""mitl build-dataset with an audit and with machine labels in the database, from drawing to verifying."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from world_kit import SANDBOX, make_world, run_propose, work_until_done

from mitl.core.arrays import contains, distinct
from mitl.crowd.context import open_context
from mitl.db.store import audits as audit_store
from mitl.db.store import columns
from mitl.db.store import items as item_store
from mitl.positives.merging import MergeRules
from mitl.records import AuditPurpose, Exclusion, ExclusionKind, Label
from mitl.records.audits import AUDITED, LISTED, AuditDesign, Stratum
from mitl.records.frames import LABELS, MACHINE_LABELS, frame
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.releasing.build_dataset import ReleaseOptions, build_dataset
from mitl.stages.releasing.verify import verify

NOW = dt.datetime(2026, 11, 23, 6, tzinfo=dt.UTC)


def built(settings, folder, *, check_privacy=False, **options):
    """A release of the name `it`, by which workers are called; its files and what the command said."""
    result = build_dataset(
        settings, folder, SANDBOX, ReleaseOptions(name="it", **options), check_privacy=check_privacy
    )
    return {file.name: file.read_bytes() for file in folder.iterdir()}, result


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of which every candidate is answered, and its release."""
    folder = tmp_path_factory.mktemp("project") / "p"
    settings = make_world(folder, n_images=14)
    run_propose(settings, image_queries=3, caption_queries=3)
    work_until_done(settings)
    files, _ = built(settings, folder / "plain")
    return settings, files


@pytest.fixture(scope="module")
def audited(project):
    """The same project with an audit: its releases before the audit was answered and after."""
    settings, _ = project
    draw_audit(settings, AuditRequest(size=40), SANDBOX)
    before = built(settings, settings.project / "open")
    work_until_done(settings, rounds=12)
    return before, built(settings, settings.project / "certified", check_privacy=True)


def test_an_open_audit_leaves_a_release_as_it_was_and_says_what_is_open(project, audited):
    """Byte for byte, with a warning in one line."""
    _, plain = project
    (files, result), _ = audited

    assert files == plain
    (line,) = [line for line in result.warnings if "certificate" in line]
    assert line.startswith("the release has no certificate: the audit lacks 80 answers on 40 of")


def test_a_complete_audit_certifies_the_release(project, audited):
    """Built, privacy proved, verified; answers of the audit stand in its own files alone."""
    settings, plain = project
    _, (files, result) = audited
    folder = settings.project / "certified"

    assert not [line for line in result.warnings if "certificate" in line]
    assert result.counts["certificate"]["answers"] == pq.read_table(folder / "audit_answers.parquet").num_rows
    assert any("recall is at least" in line for line in result.lines)
    assert files["judgements.parquet"] == plain["judgements.parquet"]
    assert files["mturk_parsed.csv"] == plain["mturk_parsed.csv"]
    before = json.loads(plain["manifest.json"])["counts"]
    after = json.loads(files["manifest.json"])["counts"]
    found = after["positives_by_source"].pop("audit", 0)
    assert after["positives"] == before["positives"] + found
    assert after["positives_by_source"] == before["positives_by_source"]
    assert after["judgements"] == before["judgements"] and after["agreement"] == before["agreement"]
    assert verify(folder).refusal is None
    assert built(settings, folder)[1].status == "nothing_to_do"


def test_the_official_filters_read_no_audit(project, audited):
    """They reproduce files that had none, and say so."""
    settings, _ = project

    files, result = built(settings, settings.project / "official", rules=MergeRules(official=True))

    assert "certificate.json" not in files
    assert any("the official filters reproduce files that had no audit" in line for line in result.warnings)


def test_another_pool_voids_the_audit(project, audited, tmp_path):
    """More queries were asked: the release is built without a certificate, and says why."""
    settings, _ = project
    copy = tmp_path / "p"
    shutil.copytree(settings.project, copy)
    moved = replace(settings, project=copy, db_url=f"sqlite:///{copy}/mitl.db")
    run_propose(moved, image_queries=6, caption_queries=4)

    files, result = built(moved, copy / "voided")

    assert "certificate.json" not in files
    (line,) = [line for line in result.warnings if "certificate" in line]
    assert "changed since audit 1 was drawn, which voids it; draw another with `mitl audit draw`" in line


def test_a_list_that_takes_out_what_the_audit_was_drawn_of_is_told(project, audited, tmp_path):
    """Made by the audit's refusals it would raise the bounds, and nothing in the files but this says so."""
    settings, _ = project
    copy = tmp_path / "p"
    shutil.copytree(settings.project, copy)
    moved = replace(settings, project=copy, db_url=f"sqlite:///{copy}/mitl.db")
    drawn = pq.read_table(copy / "certified/audit.parquet").to_pandas()
    gone = drawn[drawn["held"] & drawn["known"]].iloc[0]
    with open_context(moved, SANDBOX) as context:
        pair = Exclusion(ExclusionKind.WRONG, str(gone["image_id"]), str(gone["caption_id"]), "wrong", "us")
        item_store.add_exclusions(context.session, 1, [pair])
        context.session.commit()

    files, result = built(moved, copy / "excluded")

    (line,) = [line for line in result.warnings if "exclusion list" in line]
    assert line.startswith("1 audited pair left the positives by an exclusion list after the audit was drawn")
    assert line[1:] in files["datasheet.md"].decode()
    assert "certificate.json" in files


@pytest.fixture
def labelled(project):
    """Machine labels on three pairs that nobody was asked about, withdrawn again afterwards."""
    settings, _ = project
    with open_context(settings, SANDBOX) as context:
        session = context.session
        known = columns.judgement_columns(session, SANDBOX)["pair"].to_numpy()
        pairs = columns.original_columns(session, 1)
        pairs = pairs[~contains(distinct(known), pairs)][:2]
        other = pairs[:1] + 3  # another image's caption
        pairs = np.sort(np.concatenate([pairs, other]))
        design = AuditDesign(AuditPurpose.LABELS, 0, (Stratum("likely", 10, 1, 0.0, 0.5),))
        drawn = frame(
            AUDITED,
            {
                "pair": pairs[:1],
                "place": [1],
                "stratum": [0],
                "inclusion": [0.1],
                "recheck": [False],
                "known": [False],
            },
        )
        listed = frame(LISTED, {"pair": pairs, "stratum": [0] * len(pairs)})
        audit = audit_store.add_audit(session, SANDBOX, design, listed, drawn, NOW)
        labels = frame(
            MACHINE_LABELS,
            {
                "pair": pairs,
                "label": [
                    LABELS.index(Label.NO) if pair != other[0] else LABELS.index(Label.YES)
                    for pair in pairs.tolist()
                ],
                "probability": [0.1] * len(pairs),
                "stratum": ["likely"] * len(pairs),
            },
        )
        config = {
            "confidence": 0.95,
            "error": 0.02,
            "loss": "binary",
            "siding": 0.0,
            "strata": [
                {"stratum": "likely", "pairs": 10, "sampled": 1, "labelled": 3, "bound_among_labelled": 0.02}
            ],
        }
        audit_store.add_labelling(session, SANDBOX, audit.id, json.dumps(config), labels, NOW)
        session.commit()
    yield settings
    with open_context(settings, SANDBOX) as context:
        audit_store.withdraw(context.session, SANDBOX, NOW)
        context.session.commit()


def test_machine_labels_enter_marked_and_humans_only_leaves_them_out(project, labelled, tmp_path):
    """With --humans-only every byte is as if no machine had labelled anything; so it is once they are withdrawn."""
    settings, _ = project
    files, result = built(settings, tmp_path / "with")
    without, _ = built(settings, tmp_path / "without", humans_only=True)
    with open_context(settings, SANDBOX) as context:
        audit_store.withdraw(context.session, SANDBOX, NOW)
        context.session.commit()
    withdrawn, _ = built(settings, tmp_path / "withdrawn")

    assert result.counts["machine_labels"] == 3
    assert result.counts["positives_by_source"]["machine"] == 1
    assert without == withdrawn
    assert b"What a machine labelled" in files["datasheet.md"]
    assert json.loads(files["manifest.json"])["configuration"]["machine_labels"]["error"] == 0.02
    assert b"machine_label" not in b"".join(without.values())
    assert verify(tmp_path / "with").refusal is None
