"""``mitl report --methods``: what a paper says of a project, and only what happened in it."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import chdir, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_kit import fails, ok
from process_kit import project_settings
from world_kit import make_world, run_build, run_propose, work_until_done

from mitl.analysis.report.inputs import EvaluationScore
from mitl.crowd.context import open_context
from mitl.db.session import reading
from mitl.judgements.aggregators import Aggregator
from mitl.positives.merging import MergeRules
from mitl.positives.methods import REFERENCES, Facts, UsedMachine, cited, paragraphs
from mitl.records import AnnotatorKind, Direction, PositiveSource
from mitl.records.forms import TEXTS
from mitl.stages.evaluating.figures import keep_scores
from mitl.stages.reporting.methods import as_latex, as_markdown, bibliography, facts, figures, rows
from mitl.stages.reporting.report import collect, report_input

HOSTILE = "50% of_data $x$ {a} \\input{x} & #1 ~^ [b] <script> | `c`\n\\end{document}\x1b[31m"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Judged and released; nothing in the tests changes it."""
    folder = tmp_path_factory.mktemp("methods")
    settings = make_world(folder, n_images=20)
    run_propose(settings, image_queries=6, caption_queries=8)
    work_until_done(settings)
    run_build(settings)
    return folder


@pytest.fixture(scope="module")
def known(project: Path) -> Facts:
    with open_context(project_settings(project), read_only=True) as context, reading(context.session):
        return facts(context)[0]


def keys_of(bib: str) -> list[str]:
    """The keys of a well-formed file: balanced braces, a known kind, fields with a value each."""
    assert bib.count("{") == bib.count("}")
    entries = re.findall(r"^@(\w+)\{([a-z0-9]+),\n((?:  \w+ = \{.+\},\n)+)\}$", bib, re.MULTILINE)
    assert len(entries) == bib.count("@")
    for kind, key, fields in entries:
        assert kind in {"article", "inproceedings", "book", "techreport"}, key
        assert {"author", "title", "year"} <= set(re.findall(r"^  (\w+) =", fields, re.MULTILINE)), key
    return [key for _, key, _ in entries]


def cites(tex: str) -> set[str]:
    return {key for keys in re.findall(r"\\cite\{([^}]*)\}", tex) for key in keys.split(",")}


def test_every_reference_is_cited_and_every_citation_is_there(project: Path, tmp_path: Path) -> None:
    ok("report", "--methods", tmp_path / "m.tex", "--project", project)
    tex, bib = ((tmp_path / name).read_text() for name in ("m.tex", "m.bib"))

    assert cites(tex) == set(keys_of(bib)) != set()
    assert r"\bibliography{m}" in tex
    assert tex.count(r"\begin{") == tex.count(r"\end{")


def test_all_references_are_well_formed() -> None:
    from mitl.positives.methods import bibtex

    assert keys_of(bibtex(REFERENCES)) == sorted(REFERENCES)


def test_an_annotator_has_the_fingerprint_of_the_release_s_manifest(project: Path, tmp_path: Path) -> None:
    """A run's covers the pictures that the annotator read too: the annotator's own would be another."""
    again = shutil.copytree(project, tmp_path / "again")
    with closing(sqlite3.connect(again / "mitl.db")) as database, database:
        [(config,)] = database.execute("SELECT config FROM run").fetchall()
        changed = {**json.loads(config)}
        for place, one in enumerate(changed["annotators"]):
            one["fingerprint"] = f"{place}" * 64
        database.execute("UPDATE run SET config = ?", (json.dumps(changed),))
    ok("build-dataset", "--out", again / "new", "--project", again)
    manifest = json.loads((again / "new" / "manifest.json").read_text())
    named = {one["name"]: one["fingerprint"] for one in manifest["configuration"]["runs"][0]["annotators"]}

    said = ok("report", "--methods", "-", "--project", again).out
    settings = project_settings(again)

    assert named and all(f"| fingerprint of {name} | {mark[:16]} |" in said for name, mark in named.items())
    assert dict(report_input(collect(settings)).provenance.hashes) == {
        f"annotator {name}": mark for name, mark in named.items()
    }


def test_its_numbers_are_those_of_the_status(project: Path) -> None:
    status = ok("status", "--project", project, "--json").json["counts"]
    said = ok("report", "--methods", "-", "--project", project, "--json").json["counts"]
    numbers = said["figures"]

    for name, other in (("images", "images"), ("captions", "captions"), ("candidates", "pairs")):
        assert numbers[name] == status[other]
    assert numbers["pairs_judged"] == status["pairs_judged"]
    assert numbers["hits"] == sum(status["hits"].values())
    assert numbers["submissions"] == status["submissions"]
    assert numbers["paid_cents"] == status["paid_cents"]
    assert (numbers["controls_seen"], numbers["controls_passed"]) == (
        status["golds_answered"],
        status["golds_passed"],
    )
    for number in (numbers["candidates"], numbers["submissions"], numbers["hits"]):
        assert f"{number:,}" in said["methods"]
    assert sorted(keys_of(said["bibliography"])) == said["cited"]


def test_only_what_happened_is_told(known: Facts) -> None:
    text = as_markdown(known)

    assert [one.title for one in paragraphs(known)] == [
        "Data",
        "Candidates",
        "Annotation",
        "Merging",
        "Software",
    ]
    for never in (
        "audit",
        "machine labelled",
        "Crisscrossed",
        "Dawid",
        "Bradley",
        "rejected",
        "PVSE",
        "excluded",
    ):
        assert never not in text
    assert "practice on a sandbox" in text
    assert "The release is built on scenes" in text
    named = as_markdown(replace(known, release="Coco-2026"))
    assert "The release Coco-2026 is built on scenes" in named


def test_other_kinds_of_items_are_told_in_their_own_words(known: Facts) -> None:
    """But for names of data sets and models that hold such a noun."""
    mine = UsedMachine("image words", AnnotatorKind.RANKING, "ab" * 32)
    text = as_markdown(
        replace(
            known,
            data=replace(known.data, sides=TEXTS.sides),
            summary=replace(known.summary, proposed_by={mine.name: 3}),
            machines=(mine,),
        )
    )

    assert "with 20 documents and 100 queries. Its documents and queries are generated" in text
    assert "of 6 documents that search and" in text
    assert "| documents | 20 |" in text
    assert "As for ECCV Caption" in text
    assert "proposed candidates: image words (brings its own rankings)." in text
    assert "image" not in text.replace("image words", "").replace("ECCV Caption", "").lower()
    assert "caption" not in text.replace("ECCV Caption", "").lower()


def test_what_did_happen_is_told_and_cited(known: Facts) -> None:
    """Evaluation, another way of taking answers together, a known network, other campaigns, COCO."""
    score = EvaluationScore("near", "release", Direction.I2T, "mAP@R", 0.5, 0.4, 0.6)
    more = replace(
        known,
        data=replace(known.data, rules=MergeRules(aggregator=Aggregator.DAWID_SKENE)),
        dataset_kind="coco",
        machines=(UsedMachine("near", AnnotatorKind.PROBABILITY, "ab" * 32, "pcme", True), known.machines[1]),
        other_work=(("rankings", 12), ("similarity", 3)),
        scores=(score,),
    )
    text = as_markdown(more)

    wanted = {
        "dawid1979em",
        "lin2014coco",
        "chun2021pcme",
        "bradley1952",
        "parekh2021cxc",
        "musgrave2020",
        "efron1993",
    }
    assert wanted <= set(cited(paragraphs(more)))
    assert "near (a small network of the kind of PCME [@chun2021pcme])" in text
    assert "near was scored on release by mAP@R" in text
    assert "12 HITs asked which of two rankings" in text


def test_people_who_answered_an_audit_alone_are_told(known: Facts) -> None:
    """Their pages, their pay and that it was practice; of candidates there is nothing to tell."""
    alone = replace(known, audit_answers=340, summary=replace(known.summary, judgements=0, usable=0))
    text = as_markdown(alone)

    assert "All of it was practice on a sandbox" in text
    assert "Beside 340 answers that count for an audit, this gave 0 answers on candidates." in text
    assert "**Annotation.**" not in as_markdown(replace(alone, audit_answers=0))


def test_a_certificate_and_machine_labels_are_told_as_they_stand(known: Facts) -> None:
    bound = SimpleNamespace(recall=0.8123, precision=0.91)
    worst = SimpleNamespace(recall=0.5, precision=0.6)
    certificate = SimpleNamespace(
        measured=bound,
        worst=worst,
        confidence=0.95,
        answers=700,
        method="design",
        at_most=0.9701,
        warnings=("13 workers answered; that is few",),
    )
    design = SimpleNamespace(sample=500, size=123456, simple=False, strata=(1, 2, 3))
    pairs = known.data.merged.pairs.copy()
    pairs["machine"] = -1
    pairs.loc[pairs.index[:5], "machine"] = 0
    people = int(pairs["negative"].sum())
    open_ = pairs.index[pairs["label"] == -1][:2]
    pairs.loc[open_, "negative"] = True  # by a machine alone
    part = SimpleNamespace(name="open_pairs & more, match", bound=0.02001, labelled=5, sampled=400)
    machine = SimpleNamespace(confidence=0.95, loss="binary", siding=0.0, parts=(part,))
    audit = SimpleNamespace(certificate=certificate, record=SimpleNamespace(design=design), outside=21)
    more = replace(
        known,
        audit_answers=700,
        summary=replace(known.summary, by_source={**known.summary.by_source, PositiveSource.AUDIT: 3}),
        data=replace(
            known.data, audit=audit, machine=machine, merged=replace(known.data.merged, pairs=pairs)
        ),
    )
    text, tex = as_markdown(more), as_latex(more, "x")

    assert "500 pairs of all 123,456 were drawn at random, stratified into 3 parts" in text
    assert "recall of the release is at least 81.2 % and, separately, its precision at least 91.0 %" in text
    assert "at least 50.0 % and 60.0 %" in text
    assert "A machine labelled 5 pairs" in text
    assert len(open_) == 2 and f"; {people} pairs were refused." in text
    assert "2.1 % of 5 pairs of open" in text
    assert "Beside 700 answers that count for an audit, this gave" in text
    assert (
        "recall is at most 97.1 %, both directions together. 3 matches that only the audit found are in the release "
        "and in neither" in text
    )
    assert (
        "Of 21 positives whose queries were not asked they say nothing. 13 workers answered; that is few."
        in text
    )
    assert r"open\_pairs \& more, match" in tex
    assert {"chao1987", "waudbysmith2020", "candes2025labels"} <= cites(tex)
    assert "Errors with which the first worker sided are not in this bound." in text
    machine.loss, machine.siding = "ordinal", 0.2
    graded = as_markdown(more)
    assert "with bounds by bets [@waudbysmith2020]. The loss is against answers as they were given" in graded
    assert "reckoned with" not in graded
    assert figures(more)["recall_at_least"] == 0.8123
    assert ("recall at least", "81.2 %") in rows(more)


def test_what_is_open_and_who_was_alone_are_told(known: Facts) -> None:
    """Pairs that nobody answered are not verified, and one annotator is not several."""
    alone = replace(known.summary, proposed_by={"near": 40}, proposed=40, unanswered=14)
    text = as_markdown(replace(known, summary=alone))

    assert "It proposed 40 distinct pairs." in text
    assert "14 of the proposed pairs have no usable answer: people have not said whether they match." in text
    assert "no usable answer" not in as_markdown(known)


def test_figures_of_later_answers_are_not_said_of_the_release(project: Path, tmp_path: Path) -> None:
    """What was built before an answer came or went is not what the section tells of; a word says so."""
    shutil.copytree(project, tmp_path / "p")
    before = ok("report", "--methods", "--project", tmp_path / "p")
    with closing(sqlite3.connect(tmp_path / "p" / "mitl.db")) as database, database:
        database.execute(
            "UPDATE judgement SET usable = 0 WHERE id = (SELECT max(id) FROM judgement WHERE usable)"
        )

    after = ok("report", "--methods", "--project", tmp_path / "p")

    assert "The release has" in before.out and "built of other answers" not in before.err
    assert "A release of what is known today would have" in after.out and "The release" not in after.out
    assert "the release was built of other answers, exclusion lists or queries; build it again" in after.err


def test_a_release_of_ratings_alone_is_told_by_its_own_rules(tmp_path: Path) -> None:
    """Nothing was posted, so its answers are of no practice; the report merges as it does too."""
    (tmp_path / "captions.csv").write_text("caption_id,image_id,text\n1,10,a dog\n2,10,dogs\n3,20,a car\n")
    rows = "caption,image,agg_score,sampling_method\n1,10,5,c2i_original\n2,10,1,c2i_original\n3,20,4,c2i_original\n"
    (tmp_path / "sits_test.csv").write_text(rows)
    with chdir(tmp_path):
        ok("init", "--dataset", "coco", "--captions", "captions.csv", "--cxc", "sits_test.csv")
        spoken_of = {ok(command, "--json").json["counts"]["environment"] for command in ("status", "report")}
        assert spoken_of == {"sandbox"}
        ok("build-dataset", "--out", "rel", "--recipe", "paper")
        assert ok("report", "--json").json["counts"]["environment"] == "live"

        assert "The release has 2 positives" in ok("report", "--methods").out
        assert report_input(collect(project_settings(tmp_path))).release == "rel"


def test_a_release_of_named_queries_is_told_and_rebuilt_with_them(tmp_path: Path) -> None:
    """Past work has no other queries: nothing has to be built again. What cites nothing has no bibliography."""
    (tmp_path / "captions.csv").write_text("caption_id,image_id,text\n1,10,a dog\n2,10,dogs\n3,20,a car\n")
    (tmp_path / "past.csv").write_text("a,w,image,caption,answer\nA1,W1,20,1,yes\nA2,W2,10,3,no\n")
    columns = {"assignment": "a", "worker": "w", "image": "image", "caption": "caption", "label": "answer"}
    (tmp_path / "map.toml").write_text("".join(f'{key} = "{name}"\n' for key, name in columns.items()))
    (tmp_path / "asked.json").write_text("[10]")
    with chdir(tmp_path):
        ok("init", "--dataset", "table", "--captions", "captions.csv")
        ok("harvest", "--from", "past.csv", "--columns", "map.toml", "--sandbox")
        ok("build-dataset", "--out", "rel", "--image-query-ids", "asked.json")

        told = ok("report", "--methods")
        steps = report_input(collect(project_settings(tmp_path))).provenance.steps

    assert "built of other answers" not in told.err
    assert "2 for 1 of 1 image queries" in told.out and "bibtex" not in told.out
    assert any(step.command.endswith("--image-query-ids asked.json") for step in steps)


def test_queries_of_another_seed_are_not_called_listed(known: Facts) -> None:
    """They may have been drawn as well as listed, and nothing tells which."""
    origins = known.data.origins
    (run,) = origins.runs
    chosen = tuple(replace(draw, queries=3, items=20, seed=None) for draw in run.draws)
    data = replace(known.data, origins=replace(origins, runs=(replace(run, draws=chosen),)))

    assert "For 3 image queries chosen of 20 images" in as_markdown(replace(known, data=data))
    assert "drawn at random (seed 0)" in as_markdown(known)


def test_words_of_others_are_escaped(known: Facts) -> None:
    """Data set, release, annotator and the makers' statement cannot break out of the text or of the table."""
    data = replace(known.data, dataset=HOSTILE, card=replace(known.data.card, ethics=HOSTILE))
    machines = tuple(replace(one, name=HOSTILE) for one in known.machines)
    hostile = replace(known, data=data, release=HOSTILE, machines=machines)
    tex, text = as_latex(hostile, "x"), as_markdown(hostile)

    assert r"\input" not in tex
    assert r"\end{document}" not in tex
    assert r"50\% of\_data \$x\$ \{a\} \textbackslash{}input\{x\}" in tex
    assert "\x1b" not in tex + text
    assert "<script>" not in text
    assert tex.count(r"\begin{") == tex.count(r"\end{")
    body = re.search(r"\\toprule\n(.*)\\bottomrule", tex, re.DOTALL)
    assert body is not None
    for line in body[1].splitlines():
        assert line.endswith(r"\\")
        assert not line.startswith("[")
        assert len(re.findall(r"(?<!\\)&", line)) == 1


def test_files_are_written_once_and_others_are_refused(project: Path, tmp_path: Path) -> None:
    words = ("report", "--methods", tmp_path / "m.md", "--project", project, "--json")
    first, content = ok(*words).json, (tmp_path / "m.md").read_bytes()
    second = ok(*words).json

    assert (first["status"], second["status"]) == ("done", "nothing_to_do")
    assert (tmp_path / "m.md").read_bytes() == content
    assert set(first["paths"]) == {"methods", "bibliography"}
    assert not (project / "report.html").exists()
    assert "ends in .md or .tex" in fails(2, "report", "--methods", tmp_path / "m.doc", "--project", project)
    assert "leave out --out" in fails(
        2, "report", "--methods", "--out", tmp_path / "r.html", "--project", project
    )


def test_scores_that_are_kept_are_told(project: Path) -> None:
    settings = project_settings(project)
    keep_scores(settings.runs, {"release": {"near": {"i2t": {"mAP@R": 0.25}}}}, {}, of_all=True)
    keep_scores(settings.runs, {"original": {"far": {"i2t": {"R@1": 0.5}}}}, {}, of_all=True)
    said = ok("report", "--methods", "--project", project).out

    assert "near was scored on release by mAP@R [@musgrave2020]" in said
    assert "far was scored on original by R@1." in said
    assert "```bibtex" in said


def test_scores_on_the_other_environments_release_are_not_this_ones(project: Path, tmp_path: Path) -> None:
    """Neither the methods, nor the report, nor the correlations of the sandbox tell of a live release."""
    shutil.copytree(project, tmp_path / "p")
    settings = project_settings(tmp_path / "p")
    values = {"near": {"i2t": {"R@1": 0.25}}, "far": {"i2t": {"R@1": 0.5}}}
    of = {"release": "live"}
    keep_scores(settings.runs, {"release": values, "original": values}, {}, of_all=True, environments=of)

    assert (
        "far were scored on original by R@1." in ok("report", "--methods", "--project", settings.project).out
    )
    assert {score.positives for score in report_input(collect(settings)).evaluation} == {"original"}
    tau = ok("analyse", "correlations", "--project", settings.project, "--json").json["counts"]["analyses"]
    assert set(tau["correlations"]["tau"]) == {"original R@1"}
    unposted = make_world(tmp_path / "q", n_images=14)  # a release of ratings alone is live
    keep_scores(unposted.runs, {"release": values}, {}, of_all=True, environments=of)
    assert {score.positives for score in report_input(collect(unposted)).evaluation} == {"release"}


def test_without_answers_it_says_what_to_do(tmp_path: Path) -> None:
    make_world(tmp_path, n_images=14)
    assert "`mitl status` says what comes first" in fails(1, "report", "--methods", "--project", tmp_path)


def test_the_bibliography_is_that_of_the_text(known: Facts) -> None:
    assert set(keys_of(bibliography(known))) == set(cited(paragraphs(known)))
