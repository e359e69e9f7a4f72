"""A release with a certificate: what its files hold, what the audit adds to it and what it leaves alone."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from release_kit import (
    AUDITORS,
    FILES,
    SALT,
    audit_record,
    audited_world,
    records,
    runs_of,
    truly_matches,
    world,
)

from mitl.core.arrays import contains, pack_each, unpack_pairs
from mitl.errors import AuditError
from mitl.positives.audit_files import read_audit
from mitl.positives.certifying import certified, confirmed, refused
from mitl.positives.exclusions import Exclusions
from mitl.positives.folders import read_manifest
from mitl.positives.loading import read_release
from mitl.positives.merging import MergeRules, gather, merge
from mitl.positives.pair_answers import judgement_frame, pair_answers, table_with_controls
from mitl.positives.privacy import find_leaks, pseudonym
from mitl.positives.release import release_files, write_release
from mitl.positives.sources import read_set
from mitl.positives.verifying import verify_release
from mitl.records import Direction, IdKind, Judgement, Label, Pair, PairRole
from mitl.records.frames import LABELS, NONE

YES, WEAK_YES, WEAK_NO, NO = Label
AUDIT_FILES = {"audit.parquet", "audit_answers.parquet", "audit_strata.parquet", "certificate.json"}


def rows(files, name):
    return pq.read_table(io.BytesIO(files[f"{name}.parquet"])).to_pylist()


@pytest.fixture(scope="module")
def certified_files():
    """A certified release, and its files."""
    data = audited_world(configuration={"runs": runs_of("all", "all")})
    return data, release_files(data)[0]


def test_a_certified_release_holds_the_audit_and_its_certificate(certified_files):
    """Every drawn pair with its probability, every answer under a pseudonym, and what it was held against."""
    data, files = certified_files
    audit, answers, strata = (rows(files, name) for name in ("audit", "audit_answers", "audit_strata"))
    told = json.loads(files["certificate.json"])

    assert files.keys() == FILES | AUDIT_FILES
    assert len(audit) == data.audit.record.design.sample
    assert [row["place"] for row in audit] == list(range(1, len(audit) + 1))
    assert {row["inclusion"] for row in audit} == {s.inclusion for s in data.audit.record.design.strata}
    assert {row["worker"] for row in answers} == {pseudonym(worker, SALT) for worker in AUDITORS}
    by_pair = {(row["image_id"], row["caption_id"]): row for row in audit}
    for row in answers:
        place = ("first", "second", "third")[row["number"] - 1]
        assert by_pair[row["image_id"], row["caption_id"]][place] == row["label"]
    given = sum(row[name] is not None for row in audit for name in ("first", "second", "third"))
    assert len(answers) == given == told["certificate"]["answers"]
    assert told["words"] == list(data.audit.certificate.lines())
    assert told["held"] == len(strata) == told["certificate"]["held"]


def test_what_only_the_audit_found_enters_and_is_never_counted_as_held(certified_files):
    """Marked by its source alone, in the JSONs and the counts, and beside the positives that the bound speaks of."""
    _, files = certified_files
    before = audited_world().audit.record  # drawn anew: equal
    positives, held = (
        rows(files, "positives"),
        {(r["image_id"], r["caption_id"]) for r in rows(files, "audit_strata")},
    )
    found = {(r["image_id"], r["caption_id"]) for r in rows(files, "audit") if r["found"]}
    by_audit = {(r["image_id"], r["caption_id"]) for r in positives if "audit" in r["sources"]}
    manifest = json.loads(files["manifest.json"])

    assert found == by_audit and found
    assert not found & held
    assert held | found == {(r["image_id"], r["caption_id"]) for r in positives}
    assert manifest["counts"]["positives_by_source"]["audit"] == len(found)
    assert all(caption in json.loads(files["image_to_caption.json"])[str(image)] for image, caption in found)
    assert manifest["configuration"]["audit"]["design"]["seed"] == before.design.seed
    assert json.loads(files["certificate.json"])["found"] == len(found)


def test_a_positive_that_the_audit_refused_stays_and_is_a_conflict(certified_files):
    """The certificate speaks of the release as it was; who decided remains who had."""
    data, files = certified_files
    merged = data.merged.pairs
    doubted = merged[merged["doubted"]]
    conflicts = {
        (row["image_id"], row["caption_id"]): row
        for row in csv.DictReader(io.StringIO(files["conflicts.csv"].decode()))
    }

    assert len(doubted) and doubted["kept"].all() and not doubted["found"].any()
    for pair in unpack_pairs(doubted["pair"].to_numpy()):
        row = conflicts[str(10 * pair.image_id), str(100 * pair.caption_id)]
        assert (row["kept"], row["audit"]) == ("true", "no match")
        assert row["decided_by"] in ("judgement", "cxc", "original")


def test_a_pair_that_people_refused_and_the_audit_confirmed_is_kept_as_found(certified_files):
    """It leaves the negatives, and the conflicts say that the audit decided."""
    data, files = certified_files
    merged = data.merged.pairs
    turned = merged[merged["found"] & (merged["label"] != NONE)]
    negatives = {(row["image_id"], row["caption_id"]) for row in rows(files, "negatives")}
    decided = {
        (int(row["image_id"]), int(row["caption_id"])): (row["decided_by"], row["audit"])
        for row in csv.DictReader(io.StringIO(files["conflicts.csv"].decode()))
    }

    assert len(turned)
    (table,) = (one for one in json.loads(files["croissant.json"])["recordSet"] if one["@id"] == "positives")
    assert "empty where others do" in table["field"][2]["description"]
    for pair in unpack_pairs(turned["pair"].to_numpy()):
        ids = 10 * pair.image_id, 100 * pair.caption_id
        assert ids not in negatives
        assert decided[ids] == ("audit", "match")


def test_exclusion_lists_take_out_what_the_audit_found():
    """It is told as excluded, and the certificate still counts it as missing."""
    data = world()
    record = audit_record(data.merged)
    kept = data.merged.where("kept")
    pairs = record.audited["pair"].to_numpy()
    new = pairs[confirmed(record.audited) & ~contains(kept, pairs)]
    gone = unpack_pairs(new[:1])[0]

    whole, audit = certified(record, data.merged, Exclusions(pairs=frozenset({gone})), data.proposals, ())

    assert int(new[0]) in whole.where("excluded").tolist()
    assert int(new[0]) not in whole.where("kept").tolist()
    assert audit.certificate.found == len(new)
    assert int(whole.pairs["found"].sum()) == len(new) - 1
    files = release_files(dataclasses.replace(data, merged=whole, audit=audit))[0]
    assert f"the release did not hold: {len(new) - 1} of them in it now" in files["datasheet.md"].decode()


def test_a_strict_release_takes_in_what_the_audit_calls_yes_and_counts_the_rest_as_missing(tmp_path):
    """A weak yes confirms a match, and a strict release holds none by it."""
    strict = MergeRules(strict=True)

    def answer(pair, number):
        weak = WEAK_YES if pair.caption_id % 2 and number < 3 else YES
        return weak if truly_matches(pair) else NO

    data = audited_world(rules=strict, answer=answer)
    folder = write_release(tmp_path / "r", data).folder
    audited = data.audit.audited
    entered = audited["pair"].isin(data.merged.where("found"))

    assert 0 < entered.sum() < audited["found"].sum() == data.audit.certificate.found
    assert (audited.loc[entered, "first"] == LABELS.index(YES)).all()
    assert (audited.loc[audited["found"] & ~entered, "first"] == LABELS.index(WEAK_YES)).all()
    assert verify_release(folder).differences == ()


def test_the_same_audit_in_another_order_of_answers_gives_the_same_bytes(certified_files):
    """Answers come from the database in whatever order; their numbers say which was first."""
    data, files = certified_files
    record = data.audit.record
    shuffled = dataclasses.replace(record, answers=record.answers.sample(frac=1, random_state=1))
    audit = dataclasses.replace(data.audit, record=shuffled)

    assert release_files(dataclasses.replace(data, audit=audit))[0] == files


def test_answers_of_audits_stand_in_their_own_files_alone(certified_files):
    """Neither judgements nor counts nor a fitted model see them, with a certificate or without."""
    _, files = certified_files
    place = Judgement(Pair(1, 2), "A7", YES, role=PairRole.AUDIT)
    columns = judgement_frame([place, Judgement(Pair(1, 3), "A1", NO)])
    asked = [Judgement(Pair(1, 3), "A1", NO)]

    open_audit = release_files(dataclasses.replace(world(), judgements=columns))[0]
    assert (
        open_audit["judgements.parquet"]
        == (
            release_files(dataclasses.replace(world(), judgements=judgement_frame(asked)))[0][
                "judgements.parquet"
            ]
        )
    )
    assert rows(files, "judgements") == rows(release_files(world())[0], "judgements")
    pairs, table = table_with_controls(columns, (), ["gold", "pair"])
    assert (len(pairs), len(table)) == (1, 1)


def test_no_file_of_an_audit_gives_a_worker_away(certified_files):
    """Nor a plain hash of one; the check reads the new tables too."""
    data, _ = certified_files
    names = [f"AUDITOR{n:06}" for n in range(5)]
    renamed = data.audit.record.answers.assign(
        worker=data.audit.record.answers["worker"].map(dict(zip(AUDITORS, names, strict=True)))
    )
    record = dataclasses.replace(data.audit.record, answers=renamed)
    whole = release_files(dataclasses.replace(data, audit=dataclasses.replace(data.audit, record=record)))[0]

    assert find_leaks(whole, {"worker": names}) == []
    raw = io.BytesIO()
    pq.write_table(pa.table({"worker": names}), raw)
    leaky = {**whole, "audit_answers.parquet": raw.getvalue()}
    assert {leak.file for leak in find_leaks(leaky, {"worker": names})} == {"audit_answers.parquet"}


def test_documents_tell_the_bounds_and_what_they_rest_on(certified_files):
    """The datasheet in full, Croissant every line, the README the bounds and what weakens them."""
    data, files = certified_files
    lines = data.audit.certificate.lines()
    sheet, described = files["datasheet.md"].decode(), json.loads(files["croissant.json"])

    assert "## How complete and how right it is" in sheet
    assert all(f"- {line}" in sheet for line in lines)
    assert any("by Chao's estimate recall is at most" in line for line in lines)
    assert "| … that only the audit found | 13 |" in sheet
    assert set(lines) <= set(described["rai:dataAnnotationAnalysis"])
    warnings = [line for line in lines if line.startswith("WARNING")]
    assert warnings
    assert all(f"- {line}" in files["README.md"].decode() for line in (*lines[:3], *warnings))
    assert "were asked in the audit's sample alone" in sheet


def test_documents_of_a_release_whose_people_answered_the_audit_alone_tell_of_them():
    """Nobody rated or judged a candidate, and originals are not all that it holds."""
    nobody, data = judgement_frame([]), world()
    none = np.empty(0)
    evidence = gather(pair_answers(nobody).pairs, none.astype(np.int64), none, pack_each(records()[2]))
    merged = merge(evidence, data.rules, Exclusions())
    whole, audit = certified(audit_record(merged), merged, Exclusions(), data.proposals, ())

    files = release_files(dataclasses.replace(data, judgements=nobody, merged=whole, audit=audit))[0]

    sheet, told = files["datasheet.md"].decode(), json.loads(files["croissant.json"])
    assert "people said of a random sample of pairs whether they match" in sheet
    assert "nobody was asked" not in sheet
    assert told["description"] == "Positive pairs of images and captions of scenes, audited by people."
    assert "the original annotation and an audit's answers gave" in told["rai:dataCollection"]
    assert "Manual Human Curator" in told["rai:dataCollectionType"]
    assert told["rai:annotationsPerItem"] == "0; 1 or 3 on pairs of the audit's sample"
    assert f"; {len(AUDITORS)} with answers in audit_answers.parquet;" in told["rai:annotatorDemographics"][0]


@pytest.mark.parametrize("kind", list(IdKind))
def test_a_certified_release_reads_back(tmp_path, kind):
    """Loaders leave the new files alone; the audit comes back as it was, by the places of the released ids."""
    data = audited_world(kind)
    folder = write_release(tmp_path / "r", data).folder

    released, known = read_release(folder), read_audit(folder, read_manifest(folder))
    verified = read_set(str(folder)).verified

    assert len(released.pairs(Direction.I2T)) == int(data.merged.pairs["kept"].sum())
    assert known.design == data.audit.record.design
    for name in ("place", "stratum", "first", "second", "third", "held", "found", "label"):
        assert known.audited[name].tolist() == data.audit.audited[name].tolist()
    assert len(known.held) == len(data.audit.held)
    assert sorted(known.answers["label"]) == sorted(data.audit.record.answers["label"])
    found = data.merged.where("found")
    assert len(verified.positive) >= len(found) > 0
    assert read_audit(folder, {"files": {}}) is None


def test_a_set_is_held_against_what_an_audit_refused_as_against_what_it_found(tmp_path):
    """Or whatever the audit shows of it would speak for it."""
    data = audited_world()
    verified = read_set(str(write_release(tmp_path / "r", data).folder)).verified
    drawn = data.audit.audited
    alone = drawn[~drawn["held"] & (drawn["label"] == NONE)]
    pairs = {
        found: {
            (f"{10 * pair.image_id}", f"{100 * pair.caption_id}")
            for pair in unpack_pairs(of["pair"].to_numpy())
        }
        for found, of in alone.groupby("found")
    }

    assert pairs[True] and pairs[True] <= verified.positive
    assert pairs[False] and pairs[False] <= verified.judged - verified.positive


def test_an_audit_that_cannot_certify_says_so_in_one_line():
    """An open answer, one worker who gave most of them, or a draw from a part of the pool alone."""
    data = world()
    record = audit_record(data.merged)
    lacking = record.audited.assign(first=np.int8(NONE), second=np.int8(NONE), third=np.int8(NONE))
    alone = record.answers.assign(worker="A3")
    part = dataclasses.replace(record.design, strata=record.design.strata[:1])

    for broken, line in (
        (dataclasses.replace(record, audited=lacking), "lacks 147 answers on 69 of its 69 pairs"),
        (dataclasses.replace(record, answers=alone), "one worker gave 100.0 %"),
        (dataclasses.replace(record, design=part), "hold 58 of the 180 pairs of the pool"),
    ):
        with pytest.raises(AuditError, match=line):
            certified(broken, data.merged, Exclusions(), data.proposals, ())


@pytest.mark.parametrize(
    ("labels", "is_confirmed", "is_refused"),
    [
        ((YES, WEAK_YES, NO), True, False),
        ((YES, NO, YES), True, False),
        ((NO, YES, YES), False, False),
        ((YES, NO, NO), False, True),
        ((NO, NO, YES), False, True),
        ((NO, None, None), False, False),
        ((YES, None, None), False, False),
    ],
)
def test_confirmed_and_refused_by_three_answers(labels, is_confirmed, is_refused):
    """Confirmed starts with a yes; one answer refuses nothing."""
    places = [NONE if label is None else LABELS.index(label) for label in labels]
    audited = (
        audit_record(world().merged)
        .audited[:1]
        .assign(
            **{name: np.int8(place) for name, place in zip(("first", "second", "third"), places, strict=True)}
        )
    )

    assert confirmed(audited).tolist() == [is_confirmed]
    assert refused(audited).tolist() == [is_refused]
