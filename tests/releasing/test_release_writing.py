"""The release folder: what it holds, that it is the same every time, and that nothing is lost by writing it."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import importlib.util
import io
import json
import re
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from record_kit import proposal_frame
from release_kit import FILES, SALT, audited_world, fail_to_put_in_place, records, world

from mitl.core.arrays import pack_each, unpack_pairs
from mitl.errors import ReleaseError
from mitl.judgements.aggregators import Aggregator
from mitl.metrics.positives import Positives, locate
from mitl.metrics.retrieval import score
from mitl.positives.exclusions import Exclusions
from mitl.positives.folders import file_entries
from mitl.positives.ids import release_ids
from mitl.positives.loading import official_positives, read_references, read_release
from mitl.positives.merging import MergeRules, gather, merge
from mitl.positives.pair_answers import judgement_frame, pair_answers
from mitl.positives.privacy import pseudonym
from mitl.positives.release import release_files, write_release
from mitl.positives.release_input import ExclusionList, Origins, ReleaseCard
from mitl.positives.verifying import verify_release
from mitl.records import (
    Direction,
    ExclusionKind,
    IdKind,
    Label,
    Pair,
    Proposal,
)
from mitl.records.forms import TEXTS
from mitl.records.questions import RATIONALE, Question, QuestionType


def positives(data):
    """The pairs that a release lists."""
    return unpack_pairs(data.merged.where("kept"))


def test_the_same_inputs_in_another_order_give_the_same_bytes():
    """Judgements, proposals, ratings and originals are shuffled; every file stays as it was."""
    files, _ = release_files(world(seed=1))
    again, _ = release_files(world(seed=2))

    assert files.keys() == FILES
    assert again == files


def test_a_second_writing_touches_nothing(tmp_path):
    """The first run makes the folder whole with nothing beside it; the second finds it as it should be."""
    first = write_release(tmp_path / "deep" / "r", world())
    stamps = {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    second = write_release(first.folder, world())

    assert (first.changed, second.changed) == (True, False)
    assert second.manifest_sha256 == first.manifest_sha256
    assert {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()} == stamps
    assert [path.name for path in first.folder.parent.iterdir()] == ["r"]
    assert first.folder.stat().st_mode & 0o077 == (tmp_path / "deep").stat().st_mode & 0o077


def test_no_release_is_written_within_another(tmp_path):
    """The other would no longer be as it was released; a manifest of something else around it is none of ours."""
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    outer = write_release(tmp_path / "r", world()).folder

    with pytest.raises(ReleaseError, match="lies in a release"):
        write_release(outer / "deep" / "strict", world(rules=MergeRules(strict=True)), replace=True)

    assert verify_release(outer).differences == ()


def test_a_release_replaces_an_earlier_or_damaged_one_when_asked(tmp_path):
    """A changed recipe gives other bytes; a file that was tampered with is put right."""
    folder = write_release(tmp_path / "r", world()).folder
    changed = write_release(folder, world(rules=MergeRules(strict=True)), replace=True)
    (folder / "positives.parquet").write_bytes(b"tampered")
    mended = write_release(folder, world(rules=MergeRules(strict=True)), replace=True)

    assert changed.changed
    assert mended.changed
    assert mended.manifest_sha256 == changed.manifest_sha256
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_a_release_is_not_overwritten_unless_asked(tmp_path):
    """Neither one of other rules nor one whose files were changed by hand; the line says how to ask."""
    folder = write_release(tmp_path / "r", world()).folder
    (folder / "datasheet.md").write_text("my own words")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    with pytest.raises(ReleaseError, match=r"holds another release, of other judgements, .* give --replace"):
        write_release(folder, world(rules=MergeRules(strict=True)))
    with pytest.raises(ReleaseError, match="this release, but with files that were changed since"):
        write_release(folder, world())

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (tmp_path / "empty").mkdir()
    assert write_release(tmp_path / "empty", world()).changed


def test_folders_of_others_are_left_alone(tmp_path):
    """Not a release, a release with a stranger's file in it, or a plain file: one line and no change."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("keep me")
    folder = write_release(tmp_path / "r", world()).folder
    (folder / "thesis.tex").write_text("keep me too")
    (tmp_path / "file").write_text("and me")

    with pytest.raises(ReleaseError, match="is not a release, so it is left alone"):
        write_release(tmp_path / "notes", world())
    with pytest.raises(ReleaseError, match=r"holds 'thesis\.tex'"):
        write_release(folder, world(rules=MergeRules(strict=True)))
    with pytest.raises(ReleaseError, match="is not a folder"):
        write_release(tmp_path / "file", world())
    assert (tmp_path / "notes" / "todo.txt").read_text() == "keep me"
    assert (folder / "thesis.tex").read_text() == "keep me too"


def test_a_failed_writing_leaves_the_old_release_and_no_crumbs(tmp_path, monkeypatch):
    """The new folder cannot be put in place; the old one comes back."""
    folder = write_release(tmp_path / "r", world()).folder
    before = (folder / "manifest.json").read_bytes()
    fail_to_put_in_place(monkeypatch)
    with pytest.raises(ReleaseError, match="No space left"):
        write_release(folder, world(rules=MergeRules(strict=True)), replace=True)

    assert (folder / "manifest.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_the_manifest_lists_every_file_with_its_hash_and_no_time():
    """Hashes match the bytes; nothing looks like a clock time."""
    files, _ = release_files(world())
    manifest = json.loads(files["manifest.json"])

    assert manifest["files"].keys() == FILES - {"manifest.json"}
    for name, entry in manifest["files"].items():
        assert entry == {"bytes": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
    assert manifest["environment"] == "sandbox"
    assert manifest["seeds"] == {"propose": 0}
    assert not re.search(rb"\d\d:\d\d", files["manifest.json"])


def test_positives_carry_ids_label_sources_and_share():
    """Column names and types are those that loaders rely on."""
    files, summary = release_files(world())
    table = pq.read_table(io.BytesIO(files["positives.parquet"]))
    rows = table.to_pylist()

    assert [str(field.type) for field in table.schema] == [
        "int64",
        "int64",
        "string",
        "list<element: string>",
        "list<element: string>",
        "int16",
        "float",
    ]
    assert table.num_rows == summary.positives > 0
    assert {row["label"] for row in rows} == {"yes", "weak_yes", None}
    assert all(row["sources"] for row in rows)
    judged = next(row for row in rows if row["image_id"] == 30 and row["caption_id"] == 100)
    assert judged == {
        "image_id": 30,
        "caption_id": 100,
        "label": "yes",
        "sources": ["judgement"],
        "annotators": ["clip", "vsrn"],
        "n_judgements": 2,
        "probability": 1.0,
    }


def test_workers_appear_under_pseudonyms_alone():
    """No file holds a worker's id or the salt; golds are not shown; the same worker has one name."""
    data = world()
    files, _ = release_files(data)
    rows = pq.read_table(io.BytesIO(files["judgements.parquet"])).to_pylist()

    assert len(rows) == len(data.judgements) - 1
    assert {row["worker"] for row in rows} == {pseudonym(f"A{n}", SALT) for n in range(3)}
    assert all(re.fullmatch(r"w_[a-z2-7]{16}", row["worker"]) for row in rows)
    assert not {row["worker"] for row in rows} & {pseudonym(f"A{n}", b"x" * 16) for n in range(3)}
    everything = b"".join(files.values())
    assert SALT not in everything
    assert SALT.hex().encode() not in everything
    order = [(row["image_id"], row["caption_id"], row["worker"]) for row in rows]
    assert order == sorted(order)
    with pytest.raises(ReleaseError, match="the salt has 4 bytes"):
        release_files(world(salt=b"salt"))


def test_answers_of_all_outcomes_are_kept_as_given():
    """A skip has no label; an unusable answer is there and says so."""
    files, _ = release_files(world())
    rows = pq.read_table(io.BytesIO(files["judgements.parquet"])).to_pylist()

    assert [row["label"] for row in rows if row["outcome"] == "skipped"] == [None]
    assert [row["label"] for row in rows if not row["usable"]] == ["no"]
    (overlap,) = [row for row in rows if row["concepts"]]
    assert (overlap["shortcomings"], overlap["concepts"]) == (
        ["not_in_image", "described_wrongly"],
        ["color"],
    )


def test_scores_in_the_official_csv_are_written_as_python_writes_them():
    """Great and small, whole and signed: the shortest digits that give the similarity back."""
    rng = np.random.default_rng(0)
    numbers = (rng.normal(0, 1, 2000) * 10.0 ** rng.integers(-9, 18, 2000)).tolist()
    numbers += [0.0, -0.0, 1.0, -3.0, 1e-4, 9.999e-5, 1.001e-4, 999999.5, 1e6, 1e16, 0.1, 1 / 3]
    judgements, _, _, _ = records()
    pair = next(one.pair for one in judgements if one.usable and not one.role.is_gold and one.label)
    names = [f"a{n:04}, with a comma" for n in range(len(numbers))]
    proposals = [
        Proposal(pair, name, Direction.I2T, 1, number) for name, number in zip(names, numbers, strict=True)
    ]
    data = dataclasses.replace(world(), proposals=proposal_frame(proposals))

    rows = list(csv.DictReader(io.StringIO(release_files(data)[0]["mturk_parsed.csv"].decode())))

    assert [row["model"] for row in rows] == names
    assert [row["score"] for row in rows] == [str(np.float32(number)) for number in numbers]


def test_the_official_csv_has_one_row_per_answer_annotator_and_direction():
    """Golds, repeats, skips and unusable answers are left out; ranks start at 1; codes follow the official order."""
    data = world()
    files, _ = release_files(data)
    rows = list(csv.DictReader(io.StringIO(files["mturk_parsed.csv"].decode())))

    assert files["mturk_parsed.csv"].startswith(
        b"model,ranking,score,cid,iid,annotation,shortcoming,shortcoming2\n"
    )
    asked = [j for j in records()[0] if j.usable and j.label and j.role in ("candidate", "overlap")]
    assert len(rows) == 2 * len(asked)
    assert [row for row in rows if row["iid"] == "20" and row["cid"] == "200"] == [
        {
            "model": model,
            "ranking": "3",
            "score": "0.2",
            "cid": "200",
            "iid": "20",
            "annotation": "3",
            "shortcoming": "1|3",
            "shortcoming2": "2",
        }
        for model in ("clip", "vsrn")
    ]


def test_conflicts_are_listed_with_both_opinions():
    """An original that people refused and CxC rated is there with its score."""
    files, summary = release_files(world())
    rows = list(csv.DictReader(io.StringIO(files["conflicts.csv"].decode())))

    assert len(rows) == summary.conflicts > 0
    assert {row["kept"] for row in rows} == {"true", "false"}
    assert {row["decided_by"] for row in rows} == {"judgement", "cxc"}
    assert all(row["label"] or row["original"] == "true" for row in rows)


def test_a_release_reads_back_as_it_was_written(tmp_path):
    """Integers come back as the data set's own ids; queries without positives are not listed."""
    data = world()
    folder = write_release(tmp_path / "r", data).folder
    released = read_release(folder)

    pairs = {(str(10 * pair.image_id), str(100 * pair.caption_id)) for pair in positives(data)}
    assert released.pairs(Direction.I2T) == pairs
    assert released.pairs(Direction.T2I) == {pair for pair in pairs if int(pair[1]) <= 1500}
    assert all(released.by_query[Direction.T2I].values())
    plain = json.loads((folder / "image_to_caption.json").read_text())
    assert released.by_query[Direction.I2T] == {query: tuple(map(str, plain[query])) for query in plain}


def test_string_ids_get_stand_ins_that_lead_back(tmp_path):
    """The JSONs and the CSV hold integers, `ids.parquet` their names, and reading undoes it."""
    data = world(IdKind.STRING)
    folder = write_release(tmp_path / "r", data).folder
    released = read_release(folder)
    table = pq.read_table(folder / "positives.parquet")

    assert {path.name for path in folder.iterdir()} == FILES | {"ids.parquet"}
    assert table.schema.field("image_id").type == "string"
    assert released.pairs(Direction.I2T) == {
        (f"item-{10 * pair.image_id}", f"item-{100 * pair.caption_id}") for pair in positives(data)
    }
    numbers = json.loads((folder / "image_to_caption.json").read_text())
    assert set(numbers) <= {str(n) for n in range(1, 7)}
    cells = list(csv.DictReader(io.StringIO((folder / "mturk_parsed.csv").read_text())))
    assert {int(row["iid"]) for row in cells} <= set(range(1, 7))


@pytest.mark.parametrize("kind", list(IdKind))
def test_the_reference_library_loads_a_release_and_scores_as_we_do(tmp_path, kind):
    """mAP@R, R-Precision and R@1 of random rankings agree to 1e-12, with integer and with string ids."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about optional packages at import
        eccv_caption = pytest.importorskip("eccv_caption")
    data = world(kind)
    folder = write_release(tmp_path / "r", data).folder
    reference = eccv_caption.Metrics()
    reference.set_eccv_gts(str(folder / "image_to_caption.json"), str(folder / "caption_to_image.json"))
    numbers = {
        "image": release_ids(kind, data.image_ids, "image").number,
        "caption": release_ids(kind, data.caption_ids, "caption").number,
    }
    rng = np.random.default_rng(0)
    sides = {Direction.I2T: ("image", "caption"), Direction.T2I: ("caption", "image")}
    rankings = {d: random_rankings(rng, *(numbers[side] for side in sides[d])) for d in Direction}
    given = {d.value: {int(q): row.tolist() for q, row in zip(*rankings[d], strict=True)} for d in Direction}
    theirs = reference.eccv_metrics(given, "all")

    released = read_release(folder)
    names = {"image": data.image_ids, "caption": data.caption_ids}
    for direction, (queries, items) in sides.items():
        index = [{names[s][n]: numbers[s][n] for n in names[s]} for s in (queries, items)]
        positives = locate(released.by_query[direction], *index).positives
        ours = score(*rankings[direction], positives, ks=(1,))
        assert ours.map_at_r == pytest.approx(theirs["eccv_map_at_r"][direction.value], abs=1e-12)
        assert ours.r_precision == pytest.approx(theirs["eccv_rprecision"][direction.value], abs=1e-12)
        assert ours.recall[1] == pytest.approx(theirs["eccv_r1"][direction.value], abs=1e-12)


def random_rankings(rng, queries, gallery):
    items = np.array(sorted(gallery.values()))
    return np.array(sorted(queries.values())), np.array([rng.permutation(items) for _ in queries])


def test_official_positives_come_from_the_package():
    """The sizes of the paper's Table 3; two ECCV captions lie outside the 25,000."""
    if importlib.util.find_spec("eccv_caption") is None:
        pytest.skip("the package eccv_caption is missing")
    eccv, original = official_positives("eccv"), official_positives("original")
    gallery = {caption: n for n, caption in enumerate(original.by_query[Direction.T2I])}
    queries = {image: n for n, image in enumerate(original.by_query[Direction.I2T])}
    located = locate(eccv.by_query[Direction.I2T], queries, gallery)

    assert (len(eccv.pairs(Direction.I2T)), len(eccv.pairs(Direction.T2I))) == (22_550, 11_279)
    assert located.outside_gallery == 2
    assert isinstance(located.positives, Positives)


def test_a_release_of_composed_queries_is_not_read_without_their_references(tmp_path):
    """Without them a model would be scored for finding what its query may not find."""
    data = dataclasses.replace(world(), sides=("image", "query"), references={"100": "20"})
    folder = write_release(tmp_path / "r", data).folder
    known = read_references(folder)
    (folder / "references.json").unlink()

    assert known == {"100": "20"}
    with pytest.raises(ReleaseError, match=r"references\.json' cannot be read"):
        read_references(folder)


def test_a_damaged_release_is_not_read(tmp_path):
    """No folder, no manifest, a foreign manifest, a changed file, a missing file: each is told as it is."""
    folder = write_release(tmp_path / "r", world()).folder
    json_path = folder / "image_to_caption.json"
    whole = json_path.read_bytes()

    with pytest.raises(ReleaseError, match="no release folder"):
        read_release(tmp_path / "none")
    with pytest.raises(ReleaseError, match=r"holds no manifest\.json"):
        read_release(tmp_path)
    json_path.write_bytes(whole + b" ")
    with pytest.raises(ReleaseError, match="is not the file that was released"):
        read_release(folder)
    json_path.unlink()
    with pytest.raises(ReleaseError, match="cannot be read"):
        read_release(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ReleaseError, match="not a manifest of format"):
        read_release(folder)


@pytest.mark.parametrize("content", ["[", "[]", '{"1": 2}', '{"1": ["x"]}', '{"a": [1]}', '{"1": [true]}'])
def test_malformed_positives_are_refused(tmp_path, content):
    """Whatever is wrong with the JSON, though the manifest vouches for it, it is one clear error."""
    folder = write_release(tmp_path / "r", world()).folder
    (folder / "image_to_caption.json").write_text(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] |= file_entries({"image_to_caption.json": content.encode()})
    (folder / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(ReleaseError, match="image_to_caption"):
        read_release(folder)


def test_ids_that_cannot_be_told_apart_are_refused():
    """'7' and '007' are one integer; 'x' is none."""
    with pytest.raises(ReleaseError, match="two images are both called 7"):
        release_ids(IdKind.INTEGER, {1: "7", 2: "007"}, "image")
    with pytest.raises(ReleaseError, match="caption id 'x'"):
        release_ids(IdKind.INTEGER, {1: "x"}, "caption")


def test_croissant_describes_every_table_and_data_file():
    """Record sets mirror the tables' columns; hashes are those of the files; lists are arrays of any length."""
    files, _ = release_files(world(IdKind.STRING))
    described = json.loads(files["croissant.json"])

    assert described["conformsTo"][0] == "http://mlcommons.org/croissant/1.1"
    hashes = {entry["@id"]: entry["sha256"] for entry in described["distribution"]}
    assert hashes == {
        name: hashlib.sha256(files[name]).hexdigest()
        for name in FILES - {"README.md", "manifest.json", "croissant.json"} | {"ids.parquet"}
    }
    for record_set in described["recordSet"]:
        schema = pq.read_schema(io.BytesIO(files[f"{record_set['@id']}.parquet"]))
        fields = {field["source"]["extract"]["column"]: field for field in record_set["field"]}
        assert list(fields) == schema.names
        lists = {n for n in fields if str(schema.field(n).type).startswith("list")}
        arrays = {n: (one["isArray"], one["arrayShape"]) for n, one in fields.items() if "isArray" in one}
        assert arrays == dict.fromkeys(lists, (True, "-1"))
        assert {key["@id"] for key in record_set.get("key", [])} <= {
            field["@id"] for field in record_set["field"]
        }


def test_a_question_of_ones_own_describes_its_own_column_alone():
    """Other tables may have a column of that name."""
    own = Question(
        "kind", QuestionType.TEXT, "What kind?", column="kind", meaning="What kind of picture it is."
    )
    described = json.loads(
        release_files(world(IdKind.STRING, questions=(*RATIONALE, own)))[0]["croissant.json"]
    )

    (ids,) = (one for one in described["recordSet"] if one["@id"] == "ids")
    assert ids["field"][0]["description"] == "image or caption."


def test_croissant_says_in_prov_where_a_release_comes_from():
    """Of which data sets, by what was done, who answers for it; a row's worker is whom it is attributed to."""
    card = ReleaseCard(creators=("A Lab", "B Lab"))
    described = json.loads(release_files(audited_world(card=card))[0]["croissant.json"])
    data, summary = world(), release_files(world())[1]

    assert described["@context"]["prov"] == "http://www.w3.org/ns/prov#"
    assert described["prov:wasDerivedFrom"][0] == {"@type": "prov:Entity", "prov:label": data.dataset}
    assert described["prov:wasAttributedTo"] == [
        {"@type": "prov:Agent", "prov:label": maker} for maker in card.creators
    ]
    programs = {
        one["prov:label"]: [agent["prov:label"] for agent in one.get("prov:wasAssociatedWith", [])]
        for one in described["prov:wasGeneratedBy"]
    }
    assert programs == {
        "Machine annotators proposed pairs": list(summary.proposed_by),
        "People said of pairs whether they match": [],
        "People audited a random sample of pairs": [],
        "What speaks for a positive was merged": ["mitl"],
    }
    fields = [field for record_set in described["recordSet"] for field in record_set["field"]]
    attributed = {field["@id"] for field in fields if "equivalentProperty" in field}
    assert attributed == {"judgements/worker", "audit_answers/worker"}
    nobody = json.loads(release_files(world(salt=SALT))[0]["croissant.json"])
    assert "prov:wasAttributedTo" not in nobody


def test_croissant_says_what_is_known_of_people_and_machines_and_what_is_not():
    """The fields of the vocabulary for responsible AI carry the release's own figures."""
    files, summary = release_files(world(card=ReleaseCard(contact="lab@example.org")))
    described = json.loads(files["croissant.json"])
    rai = {name: value for name, value in described.items() if name.startswith("rai:")}

    assert described["conformsTo"][1] == "http://mlcommons.org/croissant/RAI/1.0"
    assert rai["rai:annotationsPerItem"].endswith(f"({summary.usable} on {summary.pairs_judged} pairs)")
    assert rai["rai:annotatorDemographics"][0].startswith(
        "Unknown: 3 workers with answers in judgements.parquet; "
    )
    assert f"{summary.positives} positives" in rai["rai:dataCollection"]
    assert rai["rai:machineAnnotationTools"] == [
        f"{name}: {count} pairs" for name, count in summary.proposed_by.items()
    ]
    assert "lab@example.org" in rai["rai:dataReleaseMaintenancePlan"]
    nobody = json.loads(release_files(world(salt=SALT))[0]["croissant.json"])
    assert "rai:dataReleaseMaintenancePlan" not in nobody


@pytest.mark.parametrize("aggregator", [Aggregator.DAWID_SKENE, Aggregator.ORDINAL])
def test_a_model_releases_what_it_holds_possible(aggregator):
    """A row for each answered pair; the answers' probabilities add up, to the positives' own column too."""
    judgements, *_ = records()
    rules = MergeRules(aggregator=aggregator)
    answers = pair_answers(judgement_frame(judgements), rules)
    files, _ = release_files(world(rules=rules, posterior=answers.posterior))

    table = pq.read_table(io.BytesIO(files["posteriors.parquet"])).to_pylist()
    positive = pq.read_table(io.BytesIO(files["positives.parquet"])).to_pylist()

    rows = {(row["image_id"], row["caption_id"]): row for row in table}
    assert len(rows) == len(table) == len(answers.pairs)
    for row in table:
        assert sum(row[label.value] for label in Label) == pytest.approx(1, abs=1e-5)
        if aggregator is Aggregator.ORDINAL:
            assert row["match_low"] <= row["match"] <= row["match_high"]
    judged = [row for row in positive if row["probability"] is not None]
    assert judged
    for row in judged:
        known = rows[row["image_id"], row["caption_id"]]
        assert row["probability"] == pytest.approx(known["yes"] + known["weak_yes"], abs=1e-5)
    assert "config_name: posteriors" in files["README.md"].decode()
    described = json.loads(files["croissant.json"])
    assert "posteriors" in [record_set["@id"] for record_set in described["recordSet"]]


def test_the_makers_words_are_text_in_the_datasheet_and_the_readme():
    """Markup in a name neither breaks a table nor becomes a tag; what is not stated says so."""
    hostile = "<script>alert(1)</script> | **x** \n# y"
    card = ReleaseCard(description=hostile, license="CC-BY-4.0")
    origins = Origins(exclusions=(ExclusionList("1 | 2", ExclusionKind.PAIR, 3),))
    data = dataclasses.replace(world(), name=hostile, card=card, origins=origins)
    files, _ = release_files(data)
    sheet, front = files["datasheet.md"].decode(), files["README.md"].decode()

    assert "<script>" not in sheet
    assert "<script>" not in front.split("---")[2]
    assert "not stated" in sheet
    assert [line.count(" | ") for line in sheet.splitlines() if "1 \\| 2" in line] == [2]
    assert "config_name: positives\n  data_files: positives.parquet\n  default: true" in front
    assert 'license: "CC-BY-4.0"' in front


def test_a_release_of_texts_speaks_of_texts_alone_and_leaves_names_as_they_are():
    """Also in Croissant's lists, and where a release or an annotator is called after images or captions."""
    named = proposal_frame([Proposal(Pair(1, 1), "image-caption bm25", Direction.I2T, 1, 0.5)])
    data = dataclasses.replace(world(sides=TEXTS.sides), name="caption set", proposals=named)

    files, _ = release_files(data)

    told = json.loads(files["croissant.json"])
    described = {key: part for key, part in told.items() if key == "description" or key.startswith("rai:")}
    assert "image-caption bm25: 1 pair" in described.pop("rai:machineAnnotationTools")
    assert re.search("image|caption", json.dumps(described).replace("caption_id", "")) is None
    assert "\n# caption set\n" in files["README.md"].decode()
    assert "| image-caption bm25 |" in files["datasheet.md"].decode()


@pytest.mark.parametrize("scores", [[4.0], [1.0], []])
def test_ratings_that_were_merged_are_acknowledged(scores):
    """As CxC's terms ask, in words and for machines, also where they only refuse a pair; without them nothing is."""
    original = pack_each([Pair(1, 1)])
    answers = pair_answers(judgement_frame([])).pairs
    evidence = gather(answers, original[: len(scores)], np.array(scores, np.float64), original)
    merged = merge(evidence, MergeRules(), Exclusions())

    files, _ = release_files(dataclasses.replace(world(), merged=merged))

    derived = json.loads(files["croissant.json"])["prov:wasDerivedFrom"]
    assert ("Parekh et al., EACL 2021" in files["datasheet.md"].decode()) == bool(scores)
    assert ("ratings in the layout of Crisscrossed Captions" in [of["prov:label"] for of in derived]) == bool(
        scores
    )


def test_ratings_of_another_lab_are_not_called_cxcs():
    """Documents say that earlier ratings speak for a pair, and name CxC for the layout alone."""
    for official in (False, True):
        files, _ = release_files(world(rules=MergeRules(official=official)))
        for file in ("datasheet.md", "croissant.json", "README.md"):
            told = files[file].decode().replace("in the layout of CxC", "")
            assert re.findall("CxC.{0,20}", told) == []
    assert "| … that earlier ratings call a match |" in files["datasheet.md"].decode()


def test_a_name_of_any_characters_is_read_back_from_the_readme():
    """YAML takes no DEL, and none of U+0080 to U+009F, as they are."""
    odd = "".join(map(chr, [*range(1, 0xA1), 0x2028, 0xFEFF, 0xFFFE, 0x1F600]))
    files, _ = release_files(dataclasses.replace(world(), name=odd, card=ReleaseCard(license=odd)))

    head = yaml.safe_load(files["README.md"].decode().split("\n---\n")[0])

    assert (head["pretty_name"], head["license"]) == (odd, odd)
    assert head["configs"][0] == {
        "config_name": "positives",
        "data_files": "positives.parquet",
        "default": True,
    }


def test_a_release_without_any_judgement_is_whole(tmp_path):
    """CxC alone makes a release: tables are empty but typed, and it reads back."""
    none = judgement_frame([])
    evidence = gather(pair_answers(none).pairs, pack_each([Pair(1, 2)]), np.array([4.0]), pack_each([]))
    data = dataclasses.replace(
        world(),
        judgements=none,
        proposals=proposal_frame([]),
        merged=merge(evidence, MergeRules(), Exclusions()),
    )
    folder = write_release(tmp_path / "r", data).folder

    assert read_release(folder).pairs(Direction.I2T) == {("10", "200")}
    assert pq.read_table(folder / "judgements.parquet").num_rows == 0
    sheet = (folder / "datasheet.md").read_text()
    assert "Nobody was asked." in sheet
    assert "People saw" not in sheet + (folder / "croissant.json").read_text()


def test_nothing_is_said_of_machines_that_proposed_nothing():
    """Answers that were read from files: no machine is claimed, and none is warned of."""
    alone = dataclasses.replace(world(), proposals=proposal_frame([]))
    texts = {name: release_files(data)[0] for name, data in (("alone", alone), ("proposed", world()))}

    for file, claim in (
        ("datasheet.md", "favours models"),
        ("datasheet.md", "Here machines proposed"),
        ("croissant.json", "proposed by machines"),
        ("croissant.json", "favour models"),
        ("croissant.json", "no machine annotator proposed were never asked"),
    ):
        assert claim not in texts["alone"][file].decode()
        assert claim in texts["proposed"][file].decode()


def test_the_readme_tells_every_file_and_whose_positives_the_lists_hold():
    """Lists that are empty because nobody knows the queries say so."""
    known, summary = release_files(world(IdKind.STRING))
    unknown = release_files(dataclasses.replace(world(), queries={}))[0]["README.md"].decode()
    named = release_files(world(configuration={"query_lists": {"i2t": "few.txt"}}))[0]["README.md"].decode()
    assert "which the makers named" in named and "not looked for" not in named
    front = known["README.md"].decode()

    assert all(f"| `{name}` |" in front for name in set(known) - {"README.md"})
    listed = summary.query_positives[Direction.I2T], summary.queries_listed[Direction.I2T]
    assert "They list {} positives of {} image queries and ".format(*listed) in front
    assert "They are empty" in unknown
    assert "They list" not in unknown


def test_a_configuration_that_is_no_json_is_refused():
    """A set would be written in an order of its own."""
    with pytest.raises(ReleaseError, match="configuration"):
        release_files(world(configuration={"annotators": {1, 2}}))
    with pytest.raises(ReleaseError, match="has no name"):
        release_files(dataclasses.replace(world(), name=" "))
