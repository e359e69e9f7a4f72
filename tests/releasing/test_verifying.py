"""mitl verify: whoever changes a release, its manifest included, is found out by its own files."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rating_kit import rated_world
from release_kit import audited_world, runs_of, world

from mitl.cli.releases import verify as command
from mitl.errors import ReleaseError
from mitl.explorer.sources import of_release
from mitl.positives.exports.content import judged_pairs
from mitl.positives.folders import file_entries
from mitl.positives.rating_release import write_ratings
from mitl.positives.release import write_release
from mitl.positives.sources import read_set
from mitl.positives.verifying import verify_release
from mitl.records import IdKind
from mitl.settings import load
from mitl.stages.releasing.verify import verify


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A certified release that nobody touched."""
    return write_release(tmp_path_factory.mktemp("made") / "release", audited_world()).folder


@pytest.fixture
def release(made, tmp_path):
    """One to tamper with."""
    return shutil.copytree(made, tmp_path / "release")


def seal(folder):
    """A manifest and, where it can be read, a Croissant that vouch for the files as they are now."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    with suppress(ValueError, KeyError, TypeError):
        described = json.loads((folder / "croissant.json").read_text())
        there = [entry for entry in described["distribution"] if (folder / entry["@id"]).exists()]
        for entry in there:
            entry |= file_entries({"sha256": (folder / entry["@id"]).read_bytes()})["sha256"]
        described["distribution"] = there
        (folder / "croissant.json").write_text(json.dumps(described))
    names = [one.name for one in folder.iterdir() if one.name != path.name]
    manifest["files"] = file_entries({name: (folder / name).read_bytes() for name in names})
    path.write_text(json.dumps(manifest))


def retable(folder, name, change):
    """Rewrite a table's rows."""
    path = folder / f"{name}.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    pq.write_table(pa.Table.from_pylist(change(rows) or rows, schema=table.schema), path)


def rejson(folder, name, change):
    value = json.loads((folder / name).read_text())
    change(value)
    (folder / name).write_text(json.dumps(value))


def test_an_untouched_release_is_certified_again_in_words(made):
    """Figures, words and documents agree; the lines tell the bounds."""
    found = verify(made)

    assert found.refusal is None
    assert found.result.counts["certified"] is True
    assert found.result.counts["certificate"]["answers"] == found.result.counts["answers"] == 167
    assert any("recall is at least" in line for line in found.result.lines)


def test_a_release_in_the_words_of_an_earlier_version_is_certified_again(release):
    """Its datasheet said of the draw what reads as if the whole number came from each stratum."""
    path = release / "datasheet.md"
    now, before = (
        "at random, so many from each of the strata as its row below says",
        "at random from each of the strata below",
    )
    assert now in path.read_text()
    path.write_text(path.read_text().replace(now, before))
    seal(release)
    assert verify(release).refusal is None


@pytest.mark.parametrize("kind", list(IdKind))
def test_a_release_without_a_certificate_is_checked_by_its_hashes(tmp_path, kind):
    """And so is a release of ratings; both say that nothing certifies them. Its lists are held against its table."""
    folder = write_release(tmp_path / "r", world(kind)).folder
    ratings = write_ratings(tmp_path / "s", rated_world()).folder

    for one in (folder, ratings):
        assert verify(one).refusal is None
        assert "no certificate" in verify(one).result.lines[-1]
    (folder / "datasheet.md").write_text("rosy words")
    (ratings / "datasheet.md").unlink()
    assert verify(folder).refusal.endswith(
        "datasheet.md is not the file that was released: its hash is another"
    )
    assert "datasheet.md is missing" in verify(ratings).refusal
    shorter_list(folder)
    seal(folder)
    assert "image_to_caption.json and positives.parquet differ on 1 query" in verify(folder).refusal


def test_counts_of_the_manifest_are_taken_again_from_the_tables(tmp_path):
    """Its own hash stands in no file, so nothing else told of a figure that was raised in it."""
    for name, made in {"r": world(), "c": audited_world(IdKind.STRING)}.items():
        folder = write_release(tmp_path / name, made).folder
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        for edit in (
            {"positives": 10**6},
            {"negatives": 0},
            {"judgements": 10**6},
            {"judgements_usable": 10**6},
            {"pairs_judged": 10**6},
            {"workers": 10**6},
            {"labels": manifest["counts"]["labels"] | {"yes": 10**6}},
            {"positives_by_source": manifest["counts"]["positives_by_source"] | {"judgement": 0}},
            {"positives_by_source": {}},
        ):
            path.write_text(json.dumps(manifest | {"counts": manifest["counts"] | edit}))
            assert f"manifest.json counts {next(iter(edit))}" in verify(folder).refusal
    folder = write_ratings(tmp_path / "s", rated_world()).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in ("ratings", "ratings_counted", "ratings_repeated", "workers"):
        counts = manifest["counts"] | {name: 10**6}
        (folder / "manifest.json").write_text(json.dumps(manifest | {"counts": counts}))
        assert f"manifest.json counts {name} as 1000000, but" in verify(folder).refusal
    table = pq.read_table(folder / "ratings.parquet")
    for name in ("counted", "worker"):
        pq.write_table(table.drop(name).append_column(name, [[[1]] * len(table)]), folder / "ratings.parquet")
        seal(folder)
        with pytest.raises(ReleaseError, match="is not such a table of a release"):
            verify(folder)


def test_croissant_vouches_for_the_same_files_as_the_manifest(tmp_path):
    """A table or a document that was changed, with a manifest that was made to match."""
    for folder in (
        write_release(tmp_path / "r", world()).folder,
        write_ratings(tmp_path / "s", rated_world()).folder,
    ):
        before = (folder / "croissant.json").read_bytes()
        (folder / "datasheet.md").write_text("rosy words")
        seal(folder)
        assert verify(folder).refusal is None
        (folder / "croissant.json").write_bytes(before)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"] |= file_entries({"croissant.json": before})
        (folder / "manifest.json").write_text(json.dumps(manifest))
        assert "name different hashes of datasheet.md" in verify(folder).refusal


def changed_answer(folder):
    def change(rows):
        row = next(row for row in rows if row["label"] == "no")
        row["label"] = "yes"

    retable(folder, "audit_answers", change)


def changed_answer_in_both(folder):
    rows = pq.read_table(folder / "audit.parquet").to_pylist()
    victim = next(row for row in rows if row["found"])
    ids = victim["image_id"], victim["caption_id"]

    def refuse(rows):
        for row in rows:
            if (row["image_id"], row["caption_id"]) == ids:
                row |= {"first": "no", "second": None, "third": None, "found": False, "recheck": False}

    retable(folder, "audit", refuse)
    retable(
        folder,
        "audit_answers",
        lambda rows: [
            {**row, "label": "no"} if (row["image_id"], row["caption_id"]) == ids else row
            for row in rows
            if (row["image_id"], row["caption_id"]) != ids or row["number"] == 1
        ],
    )


def changed_held(folder):
    def change(rows):
        next(row for row in rows if not row["held"])["held"] = True

    retable(folder, "audit", change)


def held_everywhere(folder):
    """A pair that only the audit found is passed off as held, wherever it stands."""
    rows = pq.read_table(folder / "audit.parquet").to_pylist()
    victim = next(row for row in rows if row["found"] and row["label"] is None)
    ids = {name: victim[name] for name in ("image_id", "caption_id")}

    def mine(row):
        return all(row[name] == value for name, value in ids.items())

    retable(
        folder,
        "audit",
        lambda rows: [row | {"held": True, "found": False} if mine(row) else row for row in rows],
    )
    retable(folder, "audit_strata", lambda rows: [*rows, {**ids, "stratum": victim["stratum"]}])
    retable(
        folder, "positives", lambda rows: [row | {"sources": ["cxc"]} if mine(row) else row for row in rows]
    )
    rejson(
        folder, "certificate.json", lambda told: told.update(held=told["held"] + 1, found=told["found"] - 1)
    )


def held_twice(folder):
    """One held pair is listed as another of its stratum: counts stay, and one positive is held against nothing."""

    def change(rows):
        audited = {
            (row["image_id"], row["caption_id"])
            for row in pq.read_table(folder / "audit.parquet").to_pylist()
        }
        free = [row for row in rows if (row["image_id"], row["caption_id"]) not in audited]
        one, other = free[:2]
        other |= one

    retable(folder, "audit_strata", change)


def refused_left_out(folder):
    """A positive that the audit refused is passed off as outside the pool."""
    rows = pq.read_table(folder / "audit.parquet").to_pylist()
    yes = ("yes", "weak_yes")
    victim = next(row for row in rows if row["held"] and row["first"] not in yes and row["third"] not in yes)

    def mine(row):
        return all(row[name] == victim[name] for name in ("image_id", "caption_id"))

    retable(folder, "audit", lambda rows: [row | {"held": False} if mine(row) else row for row in rows])
    retable(folder, "audit_strata", lambda rows: [row for row in rows if not mine(row)])
    rejson(
        folder,
        "certificate.json",
        lambda told: told.update(held=told["held"] - 1, outside=told["outside"] + 1),
    )


def removed_pair(folder):
    rows = pq.read_table(folder / "audit.parquet").to_pylist()
    last = rows[-1]
    ids = last["image_id"], last["caption_id"]
    retable(folder, "audit", lambda rows: rows[:-1])
    retable(
        folder,
        "audit_answers",
        lambda rows: [row for row in rows if (row["image_id"], row["caption_id"]) != ids],
    )


def changed_design(folder):
    rejson(folder, "certificate.json", lambda told: told["audit"]["design"]["strata"][1].update(size=60))


def changed_design_in_both(folder):
    changed_design(folder)
    rejson(
        folder,
        "manifest.json",
        lambda told: told["configuration"]["audit"]["design"]["strata"][1].update(size=60),
    )


def changed_confidence(folder):
    for name, path in (("certificate.json", ()), ("manifest.json", ("configuration",))):

        def change(told, path=path):
            for key in path:
                told = told[key]
            told["audit"]["design"]["confidence"] = 0.99

        rejson(folder, name, change)


def prettier_number(folder):
    rejson(folder, "certificate.json", lambda told: told["certificate"]["measured"].update(recall=0.99))


def prettier_words(folder):
    rejson(folder, "certificate.json", lambda told: told["words"].__setitem__(0, "recall is 1"))


def prettier_sheet(folder):
    path = folder / "datasheet.md"
    path.write_text(path.read_text().replace("recall is at least", "recall is surely"))


def prettier_croissant(folder):
    path = folder / "croissant.json"
    path.write_text(path.read_text().replace("recall is at least", "recall is surely"))


def no_text(folder):
    for name in ("datasheet.md", "README.md", "croissant.json"):
        (folder / name).write_bytes(b"\xff" * 40)


def no_certificate(folder):
    (folder / "certificate.json").unlink()


def one_person(folder):
    def change(rows):
        return [row | {"worker": rows[0]["worker"]} for row in rows]

    retable(folder, "audit_answers", change)


def fewer_positives(folder):
    held = pq.read_table(folder / "audit_strata.parquet").to_pylist()[0]
    retable(folder, "audit_strata", lambda rows: rows[1:])
    assert held


def shorter_list(folder):
    def shorten(told):
        next(items for items in told.values() if len(items) > 1).pop()

    rejson(folder, "image_to_caption.json", shorten)


def longer_list(folder):
    rejson(folder, "caption_to_image.json", lambda told: next(iter(told.values())).append(987_654))


def easier_labels(folder):
    def change(rows):
        for row in rows:
            row["label"] = "weak_no" if row["label"] == "no" else row["label"]

    retable(folder, "audit", change)


@pytest.mark.parametrize(
    ("tamper", "line"),
    [
        (changed_answer, "audit.parquet and audit_answers.parquet differ on 1 pair, first on image"),
        (
            changed_answer_in_both,
            "positives.parquet marks a pair as found by the audit that the audit did not find",
        ),
        (changed_held, "audit_strata.parquet and positives.parquet differ on what is held, first on image"),
        (held_everywhere, "certificate.json states certificate."),
        (held_twice, "audit_strata.parquet holds a pair twice"),
        (refused_left_out, "and positives.parquet differ on what is held, first on image"),
        (removed_pair, "was to have 40 audited pairs and has 39"),
        (changed_design, "manifest.json and certificate.json name different designs"),
        (changed_design_in_both, "inclusion probabilities of the audit are not those of its design"),
        (changed_confidence, "certificate.json states certificate.confidence as 0.95"),
        (
            prettier_number,
            "certificate.json states certificate.measured.recall as 0.99, but the released answers give",
        ),
        (prettier_words, "certificate.json states words.1 as 'recall is 1'"),
        (prettier_sheet, "datasheet.md tells another certificate"),
        (prettier_croissant, "croissant.json tells another certificate"),
        (no_text, "datasheet.md tells another certificate"),
        (no_text, "croissant.json tells another certificate"),
        (no_text, "README.md tells another certificate"),
        (no_certificate, "the release was certified, and certificate.json is not among its files"),
        (one_person, "one worker gave 100.0 %"),
        (fewer_positives, "audit_strata.parquet"),
        (shorter_list, "image_to_caption.json and positives.parquet differ on 1 query, first on '"),
        (longer_list, "caption_to_image.json and positives.parquet differ on 1 query, first on '"),
        (easier_labels, "audit.parquet states other answers of people than negatives.parquet"),
    ],
)
def test_whoever_changes_a_release_is_found_out(release, tamper, line):
    """By its hashes; and where the manifest was changed to vouch for it, by what the other files say."""
    tamper(release)
    assert verify(release).refusal is not None

    seal(release)
    found = verify(release)
    assert any(line in difference for difference in found.result.counts["differences"]), found.result.counts
    assert "\n" not in found.refusal
    assert found.result.counts["certified"] is False


def test_a_downloaded_release_is_verified_with_the_hidden_files_of_the_download(release):
    """A clone has .git, a hub's client leaves .cache and .gitattributes, a desktop .DS_Store."""
    (release / ".cache").mkdir()
    (release / ".gitattributes").write_text("*.parquet filter=lfs")

    assert verify(release).refusal is None


def test_a_strangers_file_and_a_path_out_of_the_folder_are_told(release):
    """What the manifest does not list is not the release's; what it lists elsewhere is not read."""
    (release / "notes.txt").write_text("mine")
    assert "notes.txt is not a file of the release" in verify(release).refusal

    (release / "notes.txt").unlink()
    rejson(release, "manifest.json", lambda told: told["files"].update({"../x": {"sha256": "0"}}))
    assert "'../x', which is no file of the release" in verify(release).refusal


def test_chaos_estimate_is_of_annotators_that_searched_the_same_queries(tmp_path):
    """What one alone searched would look as if the other had missed it; the release itself tells who searched what."""
    told = {}
    one_of_past_work = [*runs_of("a", "a")[:1], {"annotators": [], "queries": {"i2t": {"count": 0}}}]
    for name, runs in (
        ("alike", runs_of("a", "a")),
        ("past", one_of_past_work),
        ("all past", one_of_past_work[1:]),
        ("unlike", runs_of("a", "b")),
    ):
        data = audited_world(configuration={"runs": runs})
        folder = write_release(tmp_path / name, data).folder
        assert verify(folder).refusal is None
        told[name] = data.audit.certificate.at_most
    rejson(folder, "manifest.json", lambda manifest: manifest["configuration"].update(runs=["x"]))

    assert told["alike"] is not None
    assert told["unlike"] is told["past"] is told["all past"] is None
    with pytest.raises(ReleaseError, match="which annotators searched what"):
        verify_release(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("certificate.json", b"{}"),
        ("certificate.json", b"[1]"),
        ("certificate.json", b'{"format": "mitl-certificate-9"}'),
        ("audit.parquet", b"PAR1"),
        ("audit_answers.parquet", None),
        ("audit_strata.parquet", None),
        ("positives.parquet", None),
    ],
)
def test_a_malformed_audit_is_one_line(release, name, content):
    """A table without its columns is as bad as no table."""
    if content is None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"image_id": [1]}), sink)
        content = sink.getvalue()
    (release / name).write_bytes(content)
    seal(release)

    with pytest.raises(ReleaseError) as error:
        verify_release(release)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("place", [4, -20])
@pytest.mark.parametrize("name", ["audit.parquet", "positives.parquet"])
def test_a_damaged_table_is_named(release, name, place):
    """In a page or in its footer, also if the manifest vouches for it."""
    content = bytearray((release / name).read_bytes())
    content[place : place + 8] = b"\xff" * 8
    (release / name).write_bytes(content)
    seal(release)

    with pytest.raises(ReleaseError, match=name):
        verify_release(release)


@pytest.mark.parametrize(
    ("name", "column"),
    [("judgements", "usable"), ("positives", "sources"), ("audit", "held"), ("negatives", "caption_id")],
)
def test_a_table_without_a_column_is_named_by_whoever_reads_it(release, name, column):
    """What is compared, evaluated and exported reads tables too, and its manifest may vouch for a stranger's."""
    path = release / f"{name}.parquet"
    pq.write_table(pq.read_table(path).drop_columns([column]), path)
    seal(release)

    with pytest.raises(
        ReleaseError, match=rf"{name}\.parquet' is not a table of a release with the columns.*{column}"
    ):
        judged_pairs(release, read_set(str(release)).positives.by_query)


def test_the_explorer_names_the_column_that_a_table_lacks(release, tmp_path):
    """It reads whole tables."""
    path = release / "positives.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["annotators"]), path)
    seal(release)

    with pytest.raises(ReleaseError, match="lacks the column 'annotators'; build it again"):
        of_release(release, load(tmp_path, environ={}))


@pytest.mark.parametrize(
    ("name", "column", "cell"),
    [
        ("judgements", "usable", "yes"),
        ("judgements", "image_id", None),
        ("positives", "caption_id", 1.5),
        ("positives", "annotators", [None]),
        ("negatives", "label", ["no"]),
    ],
)
def test_a_column_of_another_kind_is_named(release, tmp_path, name, column, cell):
    """By whoever reads it, where the manifest vouches for the table."""
    path = release / f"{name}.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, pa.array([cell] * len(table))), path)
    seal(release)

    with pytest.raises(
        ReleaseError, match=rf"{name}\.parquet' is not a table of a release.*'{column}' of type"
    ):
        of_release(release, load(tmp_path, environ={}))


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_whatever_stands_in_the_certificate_it_is_a_line(made, tmp_path_factory, data):
    """One value of the JSON or the manifest replaced by any other: a difference or a clear error, never a traceback."""
    name = data.draw(st.sampled_from(["certificate.json", "manifest.json"]))
    value = json.loads((made / name).read_text())
    where, key = value, None
    while isinstance(where, dict | list) and where and (key is None or data.draw(st.integers(0, 3))):
        parent, key = (
            where,
            data.draw(st.sampled_from(sorted(where) if isinstance(where, dict) else range(len(where)))),
        )
        where = parent[key]
    parent[key] = data.draw(st.sampled_from([None, -1, 0.5, 10**9, "x", [], {}, [1], {"a": 1}, True]))
    folder = tmp_path_factory.mktemp("fuzz") / "release"
    shutil.copytree(made, folder)
    (folder / name).write_text(json.dumps(value))
    if name == "certificate.json" or data.draw(st.booleans()):
        with suppress(TypeError):  # a manifest that is no manifest any more
            seal(folder)

    with suppress(ReleaseError):
        verify(folder)


def test_the_command_needs_no_project_and_fails_with_status_1(release, tmp_path, monkeypatch):
    """One JSON object either way."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    whole = runner.invoke(command, [str(release), "--json"], standalone_mode=False)
    changed_answer(release)
    broken = runner.invoke(command, [str(release), "--json"], standalone_mode=False)

    assert whole.return_value == 0 and json.loads(whole.stdout)["status"] == "done"
    assert broken.return_value == 1
    assert json.loads(broken.stdout)["error"].startswith(
        "demo is not as it was released: audit_answers.parquet"
    )
    with pytest.raises(ReleaseError, match="no release folder"):
        verify(tmp_path / "nothing")
