"""A set of texts through the commands: what pages show, controls, the desk, scores, and what is refused."""

from __future__ import annotations

import filecmp
import re
import shutil
from pathlib import Path

import pytest
from cli_kit import fails, ok
from desk_kit import open_desk, written
from text_kit import write_beir

from mitl.db.session import open_database
from mitl.db.store import hits, items
from mitl.protocol.pages import parse_page
from mitl.records import Environment, PairRole
from mitl.settings import load

pytest.importorskip("bm25s", reason="the extra mitl[texts] is missing")

SANDBOX = Environment.SANDBOX


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> Path:
    """A project whose workers, two of three careful, answered everything once."""
    folder = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_beir(folder / "small", 25)
        ok("init", "project", "--dataset", "small")
        patch.chdir(folder / "project")
        ok("propose", "--annotator", "bm25", "--top-k", "5", "--depth", "6")
        ok("publish", "--sandbox", "--dry-run")
        ok("publish", "--sandbox")
        ok("simulate", "--workers", "careful:0.7,random:0.3")
        ok("harvest")
    return folder / "project"


@pytest.fixture
def project(walked, monkeypatch) -> Path:
    """The same, entered; it is left as it is."""
    monkeypatch.chdir(walked)
    return walked


def test_pages_show_both_texts_whole_and_no_picture(project):
    pages = [path.read_text(encoding="utf-8") for path in sorted((project / "dry-run").rglob("*.html"))]

    assert pages and not any("<img" in page for page in pages)
    for page in pages:
        assert len(parse_page(page).forms[0].controls) > 100
        assert "What are " in page and "&lt;here&gt;" in page and "<here>" not in page
    assert any("The rest of this text" in page for page in pages)
    assert not (project / "public").exists()


def test_controls_are_known_positives_and_pairs_that_no_judgement_names(project):
    """A second positive of a query is never a control with the answer no."""
    settings = load(project, environ={})
    with open_database(settings.db_url, read_only=True) as session:
        originals = set(items.originals(session, items.dataset(session).id))
        own = {caption.id: caption.image_id for caption in items.captions(session, items.dataset(session).id)}
        posted = [hit.id for hit in hits.hits(session, SANDBOX)]
        asked = [item for page in hits.hit_items(session, posted).values() for item in page]

    assert len(originals) == 48
    positives = {item.pair for item in asked if item.role is PairRole.GOLD_POSITIVE}
    negatives = {item.pair for item in asked if item.role is PairRole.GOLD_NEGATIVE}
    assert positives <= originals and negatives and not negatives & originals
    assert any(own[pair.caption_id] != pair.image_id for pair in positives)


def test_the_desk_shows_the_document(project):
    settings = load(project, environ={})
    with open_desk(settings) as desk:
        number = desk.rows()[0].id
        page = desk.get(f"/queue/{number}")

    assert page.status_code == 200
    assert "<here>" not in page.text and "&lt;here&gt;" in page.text
    assert "nothing at hand to show" not in written(page)
    assert f"submission {number}" in ok("review", "show", str(number)).out


def test_the_original_scores_count_every_positive(project):
    """A perfect ranking of both positives of each query has an R-Precision of 1."""
    rows = [f"q{q},{rank},d{4 * q + rank - 1},{9 - rank}" for q in range(24) for rank in (1, 2)]
    write_ranking(project.parent / "perfect.t2i.parquet", rows)
    scores = ok(
        "evaluate",
        "--model",
        f"perfect={project.parent / 'perfect.t2i.parquet'}",
        "--direction",
        "t2i",
        "--short",
        "zero",
        "--json",
    ).json
    found = scores["counts"]["scores"]["original"]["perfect"]["q2d"]

    assert found["R-Precision"] == found["mAP@R"] == found["R@1"] == 1


def write_ranking(path, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = [row.split(",") for row in rows]
    queries, ranks, found, similarities = zip(*cells, strict=True)
    columns = {"query_id": queries, "rank": [*map(int, ranks)], "item_id": found}
    pq.write_table(pa.table({**columns, "similarity": [*map(float, similarities)]}), path)


def test_a_release_is_built_again_to_the_same_bytes_and_verified(project, tmp_path):
    ok("build-dataset", "--out", tmp_path / "release", "--check-privacy")
    ok("build-dataset", "--out", tmp_path / "again" / "release")
    names = sorted(path.name for path in (tmp_path / "release").iterdir())

    assert {"query_to_document.json", "document_to_query.json", "positives.parquet"} <= {*names}
    assert (
        filecmp.cmpfiles(tmp_path / "release", tmp_path / "again" / "release", names, shallow=False)[0]
        == names
    )
    ok("verify", tmp_path / "release")


def test_tables_and_the_report_name_the_directions(project):
    assert "  q2d  " in ok("build-dataset", "--out", "../named").out
    assert "fiqa" not in ok("status").out and "data set  small: 100 documents, 24 queries" in ok("status").out
    ok("report")
    page = Path("report.html").read_text(encoding="utf-8")
    assert "documents that search" in page and "queries that search" in page
    assert "there are d2q rankings of" in page and "i2t rankings" not in page
    assert "nopicture" not in page.partition("<body>")[2] and "image quer" not in page
    summary = ok("build-dataset", "--out", "../named", "--json").json["counts"]
    assert ok("report", "--json").json["counts"]["positives_beyond_originals"] <= summary["positives"] - 40


def test_no_step_leads_to_a_campaign_of_pictures(project):
    """What such a campaign would bring is left out, without a command that this data set cannot have."""
    told = ok("analyse").out + ok("collect", "show").out
    for command in ("prefer", "rate"):
        nothing = ok(command, "scores").out
        assert "nothing to score" in nothing and "next:" not in nothing

    assert "left out: similarity: documents and queries are not rated so far; give --ratings FOLDER" in told
    assert "left out: texts: no texts are collected for documents and queries so far" in told
    assert "mitl rate" not in told and "mitl collect" not in told


@pytest.mark.parametrize("command", ["prefer", "rate", "collect"])
def test_campaigns_of_pictures_are_refused_in_one_line(project, command):
    words = {"prefer": ("--system", "bm25", "--system", "bm25x"), "rate": ("--task", "sits"), "collect": ()}
    told = fails(2, command, "publish", "--sandbox", *words[command])

    assert command != "collect" or fails(2, command, "choose", "--count", "3") == told
    assert told == (
        f"`mitl {command} publish` asks about images and captions so far, and this data set has documents and queries; "
        "`mitl publish` asks about pairs of them"
    )


def test_a_round_and_a_plan_reckon_with_the_price_of_the_wording_of_texts(project, tmp_path):
    """Also before anything was posted; at the price of pictures a round would choose more than it may post."""
    ok("init", tmp_path / "fresh", "--dataset", "../small")
    there = ("--project", tmp_path / "fresh")
    ok("propose", "--annotator", "bm25", "--top-k", "5", "--depth", "6", *there)
    wish = ("--sandbox", "--budget", "5", "--annotators", "bm25", "--strategy", "random")
    opened = ok("round", "next", *wish, "--yes", *there)
    assert re.search(r"reward +\$1\.70", opened.out) and "all 36 chosen pairs are asked" in opened.out

    assert "$1.70" in fails(1, "round", "next", "--sandbox", "--budget", "1.50", "--dry-run")
    assert "shows images and captions, and this data set has documents and queries" in fails(
        2, "round", "next", *wish, "--template", "pairs-rationale", "--dry-run"
    )
    assert "$1.70 a HIT" in ok("plan", "--template", "pairs-plain").out


def test_wordings_of_pictures_and_machines_that_look_at_pictures_are_refused(project):
    pytest.importorskip("torch")
    told = fails(2, "publish", "--sandbox", "--template", "pairs-rationale")
    assert told.startswith(
        "the wording 'pairs-rationale' shows images and captions, and this data set has documents and queries; "
        "leave out --template"
    )
    told = fails(1, "propose", "--annotator", "clip-mini", "--top-k", "5", "--depth", "6")
    assert told.startswith(
        "annotator 'clip-mini' looks at pictures, but this data set has texts on both sides"
    )


def test_options_of_pictures_are_refused(project):
    assert "has no use for --images" in fails(2, "init", "../other", "--dataset", "../small", "--images", ".")
    assert not Path("../other").exists()


def test_init_again_finds_the_same_set_and_refuses_another(project, tmp_path):
    assert ok("init", "--dataset", "../small", "--json").json["status"] == "nothing_to_do"
    write_beir(tmp_path / "small", 24)
    assert "this project holds other data than this 'small' of 96 documents and 23 queries" in fails(
        1, "init", "--dataset", tmp_path / "small"
    )


def test_init_says_that_only_the_order_of_positives_may_differ(project, tmp_path):
    """A query's first positive is its own document, so that lines of qrels in another order are another set."""
    shutil.copytree("../small", tmp_path / "small")
    qrels = tmp_path / "small" / "qrels" / "test.tsv"
    head, *lines = qrels.read_text().splitlines()
    qrels.write_text("\n".join([head, *reversed(lines)]) + "\n")

    assert "original positives or the order of an item's positives differ" in fails(
        1, "init", "--dataset", tmp_path / "small"
    )


def test_vectors_of_both_sides_propose_too(project, tmp_path, monkeypatch):
    """Under the names of the sides."""
    import numpy as np

    monkeypatch.chdir(tmp_path)
    write_beir(tmp_path / "small", 25)
    ok("init", "project", "--dataset", "small")
    monkeypatch.chdir(tmp_path / "project")
    for side, ids in (
        ("documents", [f"d{n}" for n in range(100)]),
        ("queries", [f"q{n}" for n in range(24)]),
    ):
        which = [int(one[1:]) // (4 if side == "documents" else 1) for one in ids]
        np.savez(f"{side}.npz", ids=np.array(ids), embedding=np.eye(25, dtype=np.float32)[which])
    with Path("mitl.toml").open("a") as file:
        file.write(
            '\n[annotators.mine]\nembeddings = {documents = "documents.npz", queries = "queries.npz"}\n'
        )

    counts = ok("propose", "--annotator", "mine", "--top-k", "4", "--depth", "6", "--json").json["counts"]

    assert counts["pairs"] > 90 and counts["annotators"]["mine"]["proposed"] == 4 * 124
