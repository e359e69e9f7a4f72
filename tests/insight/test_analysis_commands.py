"""``mitl analyse`` on a small generated world: what it says, writes and leaves out."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter, defaultdict
from copy import copy
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from cli_kit import fails, ok
from record_kit import counts_for_pair, proposal_frame
from world_kit import (
    ANNOTATORS,
    SANDBOX,
    make_world,
    run_build,
    run_propose,
    run_publish,
    work_until_done,
)

from mitl.analysis.records import R_AT_1, MachineAnalysis
from mitl.analysis.report.inputs import DisputeKind, Section
from mitl.analysis.report.render import render_report
from mitl.core.arrays import unpack_ids, unpack_pairs
from mitl.datasets.scenes.files import read_world
from mitl.db.session import open_database
from mitl.db.store import columns, judgements
from mitl.errors import MetricError
from mitl.positives.pair_answers import majority_answers
from mitl.records import Concept, Direction, Label, Pair, Proposal, Shortcoming
from mitl.settings import WORLD_FOLDER, load
from mitl.stages.analysing.analyse import ANALYSES
from mitl.stages.analysing.completeness import incidences
from mitl.stages.analysing.snapshot import wrong_parts
from mitl.stages.analysing.table import (
    NO_JUDGEMENTS,
    NO_RANKINGS,
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_files,
    for_people,
)
from mitl.stages.evaluating.figures import keep_scores
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reporting.report import collect, machine_analysis, report_input

NEAR, FAR = ANNOTATORS
NOT_THERE = (Label.WEAK_NO, Label.NO)
RECALLS = {"R@1": 0.25, "R@5": 0.5, "R@10": 1.0}
SCORES = {
    name: {NEAR: {"i2t": RECALLS, "t2i": RECALLS}, FAR: {"i2t": RECALLS, "t2i": {**RECALLS, "R@1": 0.125}}}
    for name in ("original", "release")
}
INTERVALS = {"release": {NEAR: {"i2t": {"R@1": [0.125, 0.5]}}}}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Proposed, judged, released and evaluated; nothing in the tests changes it."""
    folder = tmp_path_factory.mktemp("judged")
    settings = make_world(folder, n_images=30)
    run_propose(settings, image_queries=8, caption_queries=10)
    work_until_done(settings)
    run_build(settings)
    keep_scores(settings.runs, SCORES, INTERVALS, of_all=True)
    return folder


@pytest.fixture(scope="module")
def found(judged):
    """All analyses' numbers."""
    return ok("analyse", "--project", judged, "--json").json["counts"]


def test_every_analysis_is_made_or_says_why(found):
    """Embeddings in files give no uncertainty, plain pages no rationale; nobody rated, fused or collected anything."""
    assert set(found["analyses"]) | set(found["left_out"]) == set(ANALYSES)
    assert set(found["left_out"]) == {"uncertainty", "rationale", "similarity", "fusion", "texts"}
    assert "no annotator here gives an uncertainty (near, far)" in found["left_out"]["uncertainty"]
    assert "pairs-rationale" in found["left_out"]["rationale"]


def test_a_name_makes_that_analysis_alone(judged):
    """In the order in which they are shown, whatever order they are named in."""
    out = ok("analyse", "workers", "diversity", "--project", judged).out

    assert out.index("Kendall's tau-b") < out.index("workers on sandbox")
    assert "answers by annotator" not in out


def test_diversity_is_that_of_the_kept_rankings(found):
    """The one annotator is a noisy view of the other: alike, but not the same."""
    i2t = found["analyses"]["diversity"]["i2t"]

    assert i2t["queries"] == 8 and i2t["depth"] == 10
    assert i2t["tau"][NEAR][FAR] == i2t["tau"][FAR][NEAR] < 1
    assert 1 <= i2t["mutual_rank"][NEAR][FAR] <= 11


def test_answers_are_those_of_the_tables(judged, found):
    """Each direction has five ranks and every answered pair of an annotator once."""
    near = found["analyses"]["answers"]["i2t"][NEAR]

    assert set(near) == {"1", "2", "3", "4", "5", "all"}
    assert near["all"]["count"] == sum(near[str(rank)]["count"] for rank in range(1, 6)) == 40
    assert sum(near["all"][label] for label in ("yes", "weak_yes", "weak_no", "no")) == pytest.approx(1)


def test_scores_under_all_subsets_stand_against_the_known_truth(judged, found):
    """Recall@1 under the truth is what the world says of the first items."""
    bias = found["analyses"]["bias"]["t2i"][R_AT_1]
    material = AnalysisInput(load(judged, environ={}))
    lists = material.lists(Direction.T2I)
    world = read_world(judged / WORLD_FOLDER)
    images, captions = material.project.image_ids, material.project.caption_ids
    grades = {"yes": 1.0, "weak_yes": 0.5}
    expected = [
        grades.get(world.truth(images[int(row[0])], captions[int(query)]).label.value, 0.0)
        for query, row in zip(lists.query_ids, lists.items[0], strict=True)
    ]

    assert bias["true_scores"][NEAR] == pytest.approx(sum(expected) / len(expected))
    assert list(bias["scores"]) == [NEAR, FAR, f"{NEAR}+{FAR}"]
    assert [one["size"] for one in bias["by_size"]] == [1]
    assert [one["size"] for one in bias["by_size_truth"]] == [1, 2]


def test_an_annotators_own_first_item_is_always_among_its_own_positives(found):
    """So that Recall@1 has no self-bias, and selection alone does not move it either."""
    for direction in ("i2t", "t2i"):
        bias = found["analyses"]["bias"][direction][R_AT_1]
        assert [one["self"] for one in bias["by_size"]] == [0]
        assert [one["self"] for one in bias["by_size_selection"]] == pytest.approx([0, 0])


def test_ranking_deeper_takes_the_cap_away(judged, tmp_path):
    """What is made for it lies in the runs, and a second call gives the same."""
    project = tmp_path / "copy"
    shutil.copytree(judged, project)
    capped = ok("analyse", "bias", "--project", project)
    deep = ok("analyse", "bias", "--project", project, "--deep")

    headings = [
        one.out.count("R-Precision · t2i, 10 queries · deviation from the known truth")
        for one in (capped, deep)
    ]
    assert headings == [0, 2]
    assert "R-Precision is not compared with the truth" in capped.out and "(--deep ranks on)" in capped.out
    assert "not held" not in deep.out and "R at most" not in deep.out
    assert ok("analyse", "bias", "--project", project, "--deep").out == deep.out
    assert (project / "runs" / "analysis" / f"{NEAR}.i2t.parquet").is_file()


def test_a_subset_is_one_more_column(judged):
    """Beside each annotator alone, all of them and the truth."""
    out = ok("analyse", "bias", "--project", judged, "--subset", f"{FAR},{NEAR}").out

    assert out.splitlines()[1].split() == ["scored", NEAR, FAR, f"{NEAR}+{FAR}", "all", "truth"]


def test_sets_are_held_against_what_people_verified(judged, found):
    """The release holds every verified positive, so its recall and precision are 1."""
    counts = ok("analyse", "sets", "--project", judged, "--set", judged / "release", "--json").json["counts"]
    release = counts["analyses"]["sets"][str(judged / "release")]

    assert release["t2i"]["recall"] == release["t2i"]["precision"] == 1
    assert found["analyses"]["sets"]["original"]["t2i"]["recall"] < 1


def test_plausible_matches_are_a_set_beside_the_originals(judged, tmp_path):
    """Objects of the world's pictures, the project's own captions: r', precision and recall by a count of its own."""
    world, material = read_world(judged / WORLD_FOLDER), AnalysisInput(load(judged, environ={}))
    objects = {
        image: sorted({group.shape.value for group in scene.groups}) for image, scene in world.scenes.items()
    }
    path = tmp_path / "objects.json"
    path.write_text(json.dumps(objects))

    found = ok("analyse", "sets", "--project", judged, "--set", f"plausible:{path}", "--json").json["counts"]

    images, captions = material.project.image_ids, material.project.caption_ids
    own = {captions[caption.id]: images[caption.image_id] for caption in material.project.captions}
    precisions, recalls = [], []
    for query in (captions[query] for query in material.project.queries[Direction.T2I]):
        judged_pairs = {
            images[pair.image_id]: answer.label.is_positive
            for pair, answer in majority_answers(material.project.judgements).items()
            if captions[pair.caption_id] == query
        }
        looked_at = [image for image in judged_pairs if objects[image] == objects[own[query]]]
        right = sum(judged_pairs[image] for image in looked_at)
        if looked_at:
            precisions.append(right / len(looked_at))
            if any(judged_pairs.values()):
                recalls.append(right / sum(judged_pairs.values()))
    t2i = found["analyses"]["sets"][f"plausible:{path}"]["t2i"]
    assert t2i["queries"] == len(precisions) > 2
    assert t2i["precision"] == pytest.approx(sum(precisions) / len(precisions))
    assert t2i["recall"] == pytest.approx(sum(recalls) / len(recalls))
    alone = ok("compare", f"plausible:{path}", judged / "release", "--project", judged, "--json").json[
        "counts"
    ]
    assert alone["quality"][f"plausible:{path}"]["t2i"]["precision"] == pytest.approx(t2i["precision"])


def test_wrong_positives_are_told_by_what_is_wrong(judged, found):
    """Every pair that people called a match, against what the world says of it."""
    world, material = read_world(judged / WORLD_FOLDER), AnalysisInput(load(judged, environ={}))
    images, captions = material.project.image_ids, material.project.caption_ids
    positive = [
        pair
        for pair, answer in majority_answers(material.project.judgements).items()
        if answer.label.is_positive
    ]
    truths = [world.truth(images[pair.image_id], captions[pair.caption_id]) for pair in positive]
    colours = sum(Concept.COLOR in truth.concepts for truth in truths)

    told = found["analyses"]["wrong-positives"]

    assert told["positives"] == len(positive)
    assert told["by_part"]["color"] == colours > 0
    assert told["by_part"].get("object", 0) == sum(
        Shortcoming.NOT_IN_IMAGE in truth.shortcomings for truth in truths
    )
    assert told["wrong"] == sum(bool(truth.concepts) or truth.label in NOT_THERE for truth in truths)
    assert told["no_match_in_truth"] == sum(not truth.label.is_positive for truth in truths)
    assert told["excluded"] == told["listed_as_wrong"] == 0


def test_wrong_positives_can_be_taken_out_of_releases(judged, tmp_path):
    """The CSV is an exclusion list: the rows that a person leaves go from the positives and stay told."""
    project = tmp_path / "copy"
    shutil.copytree(judged, project)
    ok("analyse", "wrong-positives", "--project", project, "--csv", tmp_path)
    heading, *rows = (tmp_path / "wrong-positives.csv").read_text().splitlines()
    (tmp_path / "kept.csv").write_text("\n".join([heading, *rows[:2]]) + "\n")
    (tmp_path / "no-image.csv").write_text("kind,image_id,caption_id\nwrong,,1\n")
    before = pq.read_table(project / "release" / "positives.parquet").num_rows

    init = ("init", project, "--dataset", "scenes", "--n-images", "30", "--exclude")
    assert "is of the kind 'wrong', but has no image_id" in fails(1, *init, tmp_path / "no-image.csv")
    ok(*init, tmp_path / "kept.csv")
    ok("build-dataset", "--out", tmp_path / "cleaned", "--project", project)

    table = pq.read_table(tmp_path / "cleaned" / "positives.parquet")
    left = set(zip(*(map(str, table[name].to_pylist()) for name in ("image_id", "caption_id")), strict=True))
    listed = [(row["image_id"], row["caption_id"]) for row in csv.DictReader([heading, *rows[:2]])]
    assert len(left) == before - 2 and not left & set(listed)
    assert "pairs that people called a match although a part is wrong" in (
        tmp_path / "cleaned" / "datasheet.md"
    ).read_text(encoding="utf-8")
    told = ok("analyse", "wrong-positives", "--project", project, "--json").json["counts"]["analyses"]
    assert told["wrong-positives"]["excluded"] == told["wrong-positives"]["listed_as_wrong"] == 2


def test_a_caption_is_no_formula_in_the_list_that_a_person_edits(judged):
    """A spreadsheet would run it."""
    project = collect(load(judged)).project
    captions = tuple(replace(caption, text="=HYPERLINK(1)\nhere") for caption in project.captions)
    of = AnalysisInput.of(replace(project, captions=captions))
    analysis = ANALYSES["wrong-positives"]

    listed = analysis.show(analysis.compute(of), of).rows["wrong-positives"]

    at = listed.columns.index("text")
    assert {row[at] for row in listed.rows} == {"'=HYPERLINK(1) here"}


def test_the_figure_shows_pictures_of_each_wrong_part(judged, tmp_path):
    """Rows in the paper's order, pictures within the file, captions and answers as text."""
    ok("analyse", "wrong-positives", "--project", judged, "--plots", tmp_path)

    svg = ElementTree.parse(tmp_path / "wrong-positives.svg").getroot()

    texts = [node.text or "" for node in svg.iter() if node.tag.endswith("text")]
    headings = [text for text in texts if text.startswith("(")]
    assert headings == sorted(headings) and any("wrong color" in text for text in headings)
    pictures = [node.get("href", "") for node in svg.iter() if node.tag.endswith("image")]
    assert pictures and all(uri.startswith("data:image/jpeg;base64,") for uri in pictures)
    assert sum(text.startswith("people: ") for text in texts) == len(pictures)


def test_without_a_truth_the_ticks_of_workers_say_what_is_wrong(tmp_path):
    """Those on pairs that they called a match; the report shows the same pairs among its disagreements."""
    settings = make_world(tmp_path, n_images=12)
    run_propose(settings, image_queries=4, caption_queries=4)
    run_publish(settings, template="pairs-rationale")
    simulate(settings, SANDBOX, population="careful:0.5,random:0.5")
    harvest(settings, SANDBOX)
    (tmp_path / WORLD_FOLDER / "scenes.json").unlink()

    told = ok("analyse", "wrong-positives", "--project", tmp_path, "--json").json["counts"]["analyses"]
    found = told["wrong-positives"]
    shown = {one.kind: one for one in report_input(collect(settings)).disputes}[DisputeKind.WRONG]

    material = AnalysisInput(settings)
    ticked: dict[Pair, set[str]] = {}
    with open_database(settings.db_url, read_only=True) as session:
        stored = judgements.judgements(session, SANDBOX)
    for row in stored:
        record = row.record
        answer = material.project.answer(record.pair)
        if answer is None or not answer.label.is_positive or not counts_for_pair(record):
            continue
        parts = {concept.value for concept in record.concepts if concept is not Concept.SPECIES}
        if Shortcoming.NOT_IN_IMAGE in record.shortcomings or Concept.SPECIES in record.concepts:
            parts.add("object")
        if Shortcoming.DESCRIBED_WRONGLY in record.shortcomings and not parts:
            parts.add("other")
        if parts:
            ticked.setdefault(record.pair, set()).update(parts)
    assert found["wrong"] == shown.total == len(ticked) > 0
    assert found["positives"] == shown.of
    assert found["no_match_in_truth"] is None
    assert found["by_part"] == Counter(part for parts in ticked.values() for part in parts)
    for pair in shown.shown:
        assert pair.label.is_positive and wrong_parts(pair.shortcomings, pair.concepts)


@pytest.mark.parametrize(
    ("shortcomings", "concepts", "parts"),
    [
        ((Shortcoming.NOT_DESCRIBED, Shortcoming.GRAMMAR), (), ()),
        ((Shortcoming.NOT_IN_IMAGE,), (), ("object",)),
        ((), (Concept.SPECIES, Concept.COLOR), ("object", "color")),
        ((Shortcoming.DESCRIBED_WRONGLY,), (Concept.QUANTITY,), ("quantity",)),
        ((Shortcoming.DESCRIBED_WRONGLY,), (), ("other",)),
    ],
)
def test_what_is_left_out_is_not_wrong(shortcomings, concepts, parts):
    """A thing that is not there is a wrong object; a caption that tells too little has nothing wrong in it."""
    assert wrong_parts(shortcomings, concepts) == parts


def stored_proposals(project: Path) -> list[Proposal]:
    """As the database holds them; one run alone proposed."""
    with open_database(load(project).db_url, read_only=True) as session:
        rows = columns.proposal_columns(session)
    names = ("annotator", "direction", "rank", "similarity")
    return [
        Proposal(pair, name, tuple(Direction)[way], rank, similarity)
        for pair, name, way, rank, similarity in zip(
            unpack_pairs(rows["pair"].to_numpy()), *(rows[name] for name in names), strict=True
        )
    ]


def test_completeness_bounds_the_recall_of_what_was_proposed_from_above(judged, found):
    """By direction: the matches that people confirmed, by how many of the two annotators proposed them."""
    project = collect(load(judged)).project
    proposed = stored_proposals(judged)
    positive = {
        pair for pair, answer in majority_answers(project.judgements).items() if answer.label.is_positive
    }
    for direction in Direction:
        numbers = found["analyses"]["completeness"][direction.value]
        times = Counter(one.pair for one in proposed if one.direction is direction)
        by = Counter(times[pair] for pair in positive if pair in times)
        assert (numbers["annotators"], numbers["by_one"], numbers["by_two"]) == (2, by[1], by[2])
        assert numbers["at_least"] == pytest.approx(by[1] + by[2] + by[1] ** 2 / (4 * by[2]))
        assert numbers["recall_at_most"] == pytest.approx(numbers["found"] / numbers["at_least"])


def test_completeness_is_of_the_queries_that_all_annotators_searched(judged):
    """What one alone searched would look as if the other had missed it; where that is all, nothing is said."""
    project = collect(load(judged)).project
    i2t = [one for one in stored_proposals(judged) if one.direction is Direction.I2T]
    some = sorted({one.pair.image_id for one in i2t})[::2]

    def of(proposals):
        return incidences(AnalysisInput.of(replace(project, proposals=proposal_frame(proposals))))

    (partly,) = of(one for one in i2t if one.annotator == NEAR or one.pair.image_id in some)
    (both,) = of(one for one in i2t if one.pair.image_id in some)
    assert (partly.bound, partly.queries) == (both.bound, len(some))
    with pytest.raises(MetricError, match="no query in common"):
        of(one for one in i2t if (one.annotator == NEAR) == (one.pair.image_id in some))


def test_a_direction_without_judged_pairs_leaves_the_other_to_be_analysed(judged):
    """As after `mitl publish --direction t2i`; why the one is missing is kept."""
    project = collect(load(judged)).project
    asked_of = np.isin(unpack_ids(project.judgements["pair"].to_numpy())[0], project.queries[Direction.I2T])
    of = AnalysisInput.of(replace(project, judgements=project.judgements[~asked_of]))

    for name in ("label-order", "bias", "favour"):
        assert {row.direction for row in ANALYSES[name].compute(of)} == {Direction.T2I}
        assert (
            str(of.skipped.pop()) == "no i2t query with kept rankings has a judged pair; run `mitl harvest`"
        )


def test_one_open_pair_is_said_in_the_singular(judged):
    """All but one are answered."""
    project = collect(load(judged)).project
    judgements = project.judgements[project.judgements["pair"] != project.answered[0]]
    of = AnalysisInput.of(replace(project, judgements=judgements))

    lines = ANALYSES["completeness"].show(incidences(of), of).lines

    assert "without an answer yet: 1 candidate pair; matches there count nowhere" in lines


def test_favour_leaves_out_what_one_annotator_alone_proposed(judged, found):
    """The score with all positives less the shift is the score without; originals stay, so no query is lost."""
    by = defaultdict(set)
    for one in stored_proposals(judged):
        by[one.pair].add(one.annotator)
    for direction in Direction:
        rows = found["analyses"]["favour"][direction.value]["mAP@R"]
        assert {(row["left_out"], row["model"]) for row in rows} == set(product((NEAR, FAR), repeat=2))
        for row in rows:
            assert row["score"] + row["shift"] == pytest.approx(row["score_without"])
            assert row["low"] <= row["shift"] <= row["high"]
            assert (row["favour"] is None) == (row["left_out"] != row["model"])
            assert row["own"] <= sum(names == {row["left_out"]} for names in by.values())
            assert row["lost"] == 0


def test_multiplicity_counts_every_query(found):
    """One image for each caption before; as many as were verified after."""
    t2i = found["analyses"]["multiplicity"]["t2i"]

    assert t2i["original"]["histogram"] == [0, 10]
    assert sum(t2i["release"]["histogram"]) == 10
    assert t2i["release"]["positives"] == sum(n * q for n, q in enumerate(t2i["release"]["histogram"]))


def test_metrics_are_correlated_over_the_scores_that_are_kept(found):
    """Of both sets, with RSUM beside the recalls."""
    correlations = found["analyses"]["correlations"]

    assert correlations["models"] == 2 and set(correlations["rsum"]) == {"original RSUM", "release RSUM"}
    assert correlations["rsum"]["release RSUM"] == {NEAR: 3.5, FAR: 3.375}
    assert correlations["tau"]["original R@1"]["release RSUM"] == 1
    assert correlations["tau"]["original R@1"]["release R@5"] is None


def test_what_evaluate_keeps_is_what_is_correlated(judged, tmp_path):
    """With its intervals beside the scores."""
    project = tmp_path / "copy"
    shutil.copytree(judged, project)
    (project / "runs" / "evaluation" / "scores.json").unlink()
    ok("evaluate", "--project", project, "--release", project / "release")

    rsum = ok("analyse", "correlations", "--project", project, "--json").json["counts"]["analyses"][
        "correlations"
    ]["rsum"]

    assert set(rsum) == {"original RSUM", "release RSUM"}
    assert all(0 < value <= 6 for by_model in rsum.values() for value in by_model.values())


def test_one_annotator_only(judged):
    """What takes two says so; the rest is of that one."""
    counts = ok("analyse", "--project", judged, "--annotator", NEAR, "--json").json["counts"]

    assert "takes two annotators" in counts["left_out"]["diversity"]
    assert "takes two annotators" in counts["left_out"]["bias"]
    assert "several annotators found, but there is 1" in counts["left_out"]["completeness"]
    assert set(counts["analyses"]["label-order"]) == {NEAR}
    assert set(counts["analyses"]["answers"]["i2t"]) == {NEAR}


def test_tables_and_drawings_are_written_once(judged, tmp_path):
    """Every analysis has a table; the numbers are those of --json; the second run has nothing to do."""
    words = ("analyse", "--project", judged, "--csv", tmp_path / "csv", "--plots", tmp_path / "svg", "--json")
    first = ok(*words).json
    content = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    second = ok(*words).json

    assert (first["status"], second["status"]) == ("done", "nothing_to_do")
    assert first["counts"]["analyses"] == second["counts"]["analyses"]
    assert {path: path.read_bytes() for path in content} == content
    tables = sorted(path.stem for path in (tmp_path / "csv").iterdir())
    assert tables == [
        *("answers", "bias-by-size", "bias-scores", "completeness", "correlations", "diversity", "favour"),
        *("label-order", "multiplicity", "rsum", "sets", "workers", "wrong-positives"),
    ]
    drawings = sorted(path.stem for path in (tmp_path / "svg").iterdir())
    assert drawings == [
        *("answers", "bias", "bias-truth", "correlations"),
        *("diversity-i2t", "diversity-t2i", "favour", "multiplicity", "wrong-positives"),
    ]
    assert [first["counts"][f"{kind}_written"] for kind in ("tables", "drawings")] == [13, 9]
    assert [second["counts"][f"{kind}_written"] for kind in ("tables", "drawings")] == [0, 0]
    rows = list(csv.DictReader((tmp_path / "csv" / "diversity.csv").read_text().splitlines()))
    told = first["counts"]["analyses"]["diversity"]["i2t"]["tau"][NEAR][FAR]
    assert float(rows[0]["tau_b"]) == told


def test_the_report_gets_the_same_numbers(judged, found):
    """Without a session of its own, and without an error where something is missing."""
    settings = load(judged, environ={})
    analysis = machine_analysis(AnalysisInput(settings))

    assert analysis.left_out == {}
    assert (analysis.bias[0].direction, analysis.bias[0].metric) == ("i2t", R_AT_1)
    assert (
        dict(zip(ANNOTATORS, analysis.bias[0].together, strict=True))
        == (found["analyses"]["bias"]["i2t"][R_AT_1]["scores"][f"{NEAR}+{FAR}"])
    )
    assert (
        analysis.bias[0].subsets[0].scores[0]
        == found["analyses"]["bias"]["i2t"][R_AT_1]["scores"][NEAR][NEAR]
    )


def test_a_new_project_says_what_to_do_and_the_report_has_nothing(tmp_path):
    """Images and captions alone: every analysis is left out, in one line each."""
    settings = make_world(tmp_path, n_images=5)

    assert fails(1, "analyse", "--project", tmp_path) == NO_RANKINGS
    for name in ("answers", "bias", "sets", "multiplicity", "label-order"):
        assert fails(1, "analyse", name, "--project", tmp_path) == NO_JUDGEMENTS
    assert "mitl evaluate" in fails(1, "analyse", "correlations", "--project", tmp_path)
    assert "nobody has submitted a HIT" in fails(1, "analyse", "workers", "--project", tmp_path)
    left_out = machine_analysis(AnalysisInput(settings)).left_out
    assert set(left_out) == {"diversity", "bias", "correlations", "label_order"}
    assert machine_analysis(AnalysisInput(settings)).bias == MachineAnalysis().bias


def test_rankings_without_judgements_still_tell_diversity(tmp_path):
    """Diversity is made, what needs people is left out, and the status is 0."""
    settings = make_world(tmp_path, n_images=12)
    run_propose(settings, image_queries=3, caption_queries=3)

    counts = ok("analyse", "--project", tmp_path, "--json").json["counts"]

    assert set(counts["analyses"]) == {"diversity"}
    assert counts["left_out"]["bias"] == NO_JUDGEMENTS


def test_lost_rankings_and_a_lost_world_leave_the_rest(judged, tmp_path):
    """Somebody gave the project away without its runs and its truth."""
    project = tmp_path / "copy"
    shutil.copytree(judged, project)
    shutil.rmtree(project / "runs")
    left_out = ok("analyse", "--project", project, "--json").json["counts"]["left_out"]
    assert {name for name, reason in left_out.items() if reason == NO_RANKINGS} == {
        *("diversity", "label-order", "bias", "favour")
    }

    shutil.copytree(judged / "runs", project / "runs", dirs_exist_ok=True)
    (project / WORLD_FOLDER / "scenes.json").unlink()
    bias = ok("analyse", "bias", "--project", project, "--json").json["counts"]["analyses"]["bias"]
    assert bias["i2t"][R_AT_1]["true_scores"] is None and bias["i2t"][R_AT_1]["by_size_truth"] == []
    assert bias["i2t"][R_AT_1]["by_size"]


def test_a_damaged_ranking_is_named(judged, tmp_path):
    """And what does not need it is made all the same."""
    project = tmp_path / "copy"
    shutil.copytree(judged, project)
    (ranking,) = (project / "runs").glob(f"*/{NEAR}.i2t.parquet")
    ranking.write_bytes(b"no parquet")

    counts = ok("analyse", "--project", project, "--json").json["counts"]

    assert "is not a whole ranking file" in counts["left_out"]["bias"]
    assert {"answers", "workers", "sets"} <= set(counts["analyses"])


def test_damaged_scores_are_named(judged, tmp_path):
    """Not a traceback, whoever reads them."""
    project = tmp_path / "copy"
    shutil.copytree(judged, project)
    (project / "runs" / "evaluation" / "scores.json").write_text(json.dumps({"original": [1]}))

    for words in (
        ("analyse", "correlations"),
        ("evaluate", "--no-intervals"),
        ("report",),
        ("report", "--methods"),
    ):
        assert "holds no scores" in fails(1, *words, "--project", project)
    (project / "runs" / "evaluation" / "scores.json").write_text("[" * 100_000)
    assert "holds no scores" in fails(1, "report", "--project", project)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nonsense",), "no analysis called 'nonsense'; known: diversity, answers,"),
        (("--annotator", "clip"), "no annotator 'clip' in this project; known: near, far"),
        (
            ("bias", "--subset", "near,clip"),
            "--subset names 'clip', which is not among the annotators: near, far",
        ),
        (("diversity", "--deep"), "--deep means nothing without the analysis 'bias'"),
        (("workers", "--set", "release"), "--set means nothing without the analysis 'sets'"),
        (("workers", "--scores", "x.csv"), "--scores means nothing without the analysis 'correlations'"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(judged, words, message):
    """Exit status 2 and one line."""
    assert message in fails(2, "analyse", *words, "--project", judged)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "nowhere"), "there is no set of positives 'nowhere'"),
        (("--scores", "nowhere.csv"), "there is no file 'nowhere.csv'"),
    ],
)
def test_a_file_that_was_named_must_be_there(judged, words, message):
    """Even where all the other analyses could be made."""
    assert message in fails(1, "analyse", *words, "--project", judged)


def test_without_a_project_there_is_one_line(tmp_path):
    """Not one for each analysis."""
    assert "run `mitl init` first" in fails(1, "analyse", "--project", tmp_path)


def test_a_probabilistic_annotator_tells_its_uncertainty(tmp_path):
    """PCME-mini's standard deviations are those of its network, read off the samples that are kept."""
    pytest.importorskip("torch")
    import numpy as np

    from mitl.progress import no_progress
    from mitl.stages.analysing.uncertainty import SigmaReader
    from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose

    settings = make_world(tmp_path, n_images=12)
    propose(
        settings,
        ProposeRequest(
            annotators=(NEAR, "pcme-mini"), top_k=3, depth=5, images=QueryChoice(12), captions=QueryChoice(20)
        ),
        progress=no_progress,
    )
    counts = ok("analyse", "uncertainty", "--project", tmp_path, "--json").json["counts"]
    found = counts["analyses"]["uncertainty"]

    assert [(one["direction"], one["positives"], one["queries"]) for one in found["annotators"]] == [
        ("i2t", "truth", 12),
        ("t2i", "truth", 20),
    ]
    assert found["without"] == {
        NEAR: "has no uncertainty: it places an item at a point, not in a distribution"
    }

    material = AnalysisInput(settings)
    reader = SigmaReader(material, "pcme-mini")
    images = material.project.items.images
    sigmas = reader.of(Direction.I2T, [image.id for image in images])
    raw = copy(reader._annotator)
    raw._kept = lambda gaussians, items: gaussians
    log_sigma = raw.encode_images(images).arrays["log_sigma"]
    assert sigmas is not None and sigmas.measure == "geometric mean"
    np.testing.assert_allclose(sigmas.values, np.exp(log_sigma.astype(float).mean(1)), rtol=1e-5)


def test_a_closed_form_annotator_tells_its_spread(tmp_path):
    """Only the sum of the variances is kept there, so the mean is a quadratic one."""
    pytest.importorskip("torch")
    settings = make_world(tmp_path, n_images=6)
    config = tmp_path / "mitl.toml"
    config.write_text(config.read_text() + '\n[annotators.pcme-mini]\nsimilarity = "closed_form"\n')
    from mitl.progress import no_progress
    from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose

    settings = load(Path(tmp_path), environ={})
    both = (NEAR, "pcme-mini")
    propose(
        settings,
        ProposeRequest(annotators=both, top_k=2, depth=3, images=QueryChoice(6), captions=QueryChoice(6)),
        progress=no_progress,
    )

    (first, *_) = ok("analyse", "uncertainty", "--project", tmp_path, "--json").json["counts"]["analyses"][
        "uncertainty"
    ]["annotators"]

    assert first["measure"] == "root mean square"


def test_queries_of_all_runs_count_once(tmp_path):
    """A second run with more queries adds to the first."""
    settings = make_world(tmp_path, n_images=12)
    run_propose(settings, image_queries=3, caption_queries=4)
    run_propose(settings, image_queries=6, caption_queries=2)
    material = AnalysisInput(load(tmp_path, environ={}))

    assert len(material.project.runs) == 2
    for direction in Direction:
        lists = material.lists(direction)
        assert lists.query_ids.tolist() == sorted(material.project.queries[direction])
        assert lists.items.shape == (2, len(lists.query_ids), 10)


def test_annotators_are_compared_on_the_queries_that_all_have_ranked(tmp_path):
    """A third that ranked others has none in common, and says so; without it the two are compared."""
    settings = make_world(tmp_path, n_images=12)
    run_propose(settings, image_queries=3, caption_queries=0)
    (folder,) = (path.parent for path in settings.runs.glob(f"*/{NEAR}.i2t.parquet"))
    (folder / f"{FAR}.i2t.parquet").unlink()

    assert f"there are i2t rankings of '{NEAR}' alone" in fails(
        1, "analyse", "diversity", "--project", tmp_path
    )

    others = [image.id for image in AnalysisInput(settings).project.images if image.id not in asked(settings)]
    propose_for(settings, FAR, others[:3])
    assert "have ranked no i2t query in common" in fails(1, "analyse", "diversity", "--project", tmp_path)


def asked(settings):
    """The image queries of the project's runs."""
    return set(AnalysisInput(settings).project.queries[Direction.I2T])


def propose_for(settings, annotator, queries):
    """Propose with one annotator for the images of these surrogate ids."""
    names = AnalysisInput(settings).project.image_ids
    listed = settings.project / "queries.txt"
    listed.write_text("\n".join(names[query] for query in queries) + "\n")
    ok(
        *("propose", "--project", settings.project, "--annotator", annotator, "--top-k", 3, "--depth", 5),
        *("--image-query-ids", listed, "--caption-queries", 0),
    )


@dataclass(frozen=True)
class Length:
    """How many words the captions have that one annotator proposed; all that a toy analysis needs."""

    annotator: str
    words: float


def _lengths(of):
    """The mean over an annotator's proposals; an analysis reads the snapshot alone."""
    of.require_judgements()
    words = {caption.id: len(caption.text.split()) for caption in of.project.captions}
    captions = pd.Series(unpack_ids(of.project.proposals["pair"].to_numpy())[1]).map(words)
    means = captions.groupby(of.project.proposals["annotator"], observed=True).mean()
    return [Length(name, means[name]) for name in of.names if name in means]


LENGTH_COLUMNS = (
    Column("annotator", lambda one: one.annotator),
    Column("words", lambda one: one.words, "mean <words>", "{:.1f}".format),
)
LENGTHS = Analysis(
    "lengths",
    _lengths,
    lambda made, of: Findings(
        counts={one.annotator: one.words for one in made},
        tables=(for_people("words of the proposed captions", LENGTH_COLUMNS, made),),
        lines=("words are what stands between spaces",),
        rows={"lengths": for_files(LENGTH_COLUMNS, made)},
        drawings={"lengths": lambda: '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>'},
    ),
    Section("lengths", "Lengths", "How long the captions are", "Machines"),
)
"""A whole new table: one registration, nothing else anywhere."""


def test_one_registration_is_a_table_of_the_terminal_the_files_and_the_report(judged, tmp_path, monkeypatch):
    """A toy analysis shows its columns on the terminal, in JSON, CSV and SVG, and in a section of the report."""
    monkeypatch.setitem(ANALYSES, LENGTHS.name, LENGTHS)
    settings = load(judged, environ={})
    asked = ("analyse", "lengths", "--project", judged)

    told = ok(*asked, "--csv", tmp_path / "csv", "--plots", tmp_path / "plots").out
    numbers = ok(*asked, "--json").json["counts"]["analyses"]["lengths"]
    html = render_report(report_input(collect(settings)))

    assert "words of the proposed captions" in told and "mean <words>" in told
    assert set(numbers) == {NEAR, FAR}
    with (tmp_path / "csv" / "lengths.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert {row["annotator"]: float(row["words"]) for row in rows} == numbers
    assert (tmp_path / "plots" / "lengths.svg").is_file()
    section = html[html.index('<section id="lengths"') :]
    section = section[: section.index("</section>")]
    assert f'<th scope="row">{NEAR}</th><td>{numbers[NEAR]:.1f}</td>' in section
    assert "Mean &lt;words&gt;" in section and "<svg" in section
    assert '<li><a href="#lengths">Lengths</a></li>' in html
    assert html.index('id="bias"') < html.index('id="lengths"') < html.index('id="examples"')


def test_a_section_of_an_analysis_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    """In a new project, in the words of `mitl analyse`."""
    monkeypatch.setitem(ANALYSES, LENGTHS.name, LENGTHS)
    settings = make_world(tmp_path, n_images=5)

    html = render_report(report_input(collect(settings)))

    said = f"N{NO_JUDGEMENTS[1:]}.".replace(" `", " <code>").replace("`", "</code>")
    assert f'<p class="empty">{said}</p>' in html
