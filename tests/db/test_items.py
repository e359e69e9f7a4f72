"""Items of any kind: what no image-caption set needs, and projects that were made before there were items."""

from __future__ import annotations

import filecmp
import json
import re
import tarfile
from dataclasses import fields
from pathlib import Path

import pytest
from db_kit import content, pair_rows, sqlite_url
from sqlalchemy import select
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.db.models import ItemRow, PartRow
from mitl.db.session import open_database
from mitl.db.store import items, proposals
from mitl.positives.tables import json_bytes
from mitl.records import IdKind, Item, ItemSet, Pair, Part, PartKind, Side
from mitl.settings import Settings, load
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.operating.backup import verify
from mitl.stages.operating.databases import upgrade
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reporting.report import report
from mitl.stages.reporting.status import status

OLD = Path(__file__).parents[1] / "data" / "projects" / "p0006.tar.xz"
"""As revision p0006 left it: proposed, answered, released, a study of rankings, and posted work with new answers."""


def test_a_set_of_any_kind_is_kept_with_its_sides_parts_and_directions(project_url):
    """Pictures with a wish in words search pictures; sounds and texts stand beside them, in the order given."""
    shoe = Item("shoe.jpg", (Part(PartKind.IMAGE, file="shoe.jpg", width=640, height=480, sha256="ab"),))
    boot = Item("boot.jpg", (Part(PartKind.IMAGE, url="https://example.org/boot.jpg"),))
    wish = Item("q", (Part(PartKind.IMAGE, file="shoe.jpg"), Part(PartKind.TEXT, "but higher")), "shoe.jpg")
    bark = Item("bark", (Part(PartKind.AUDIO, file="bark.wav"),))
    data = ItemSet(
        "composed",
        "by hand",
        IdKind.STRING,
        (
            Side("image", (boot, shoe)),
            Side("query", (wish,), made_for="image"),
            Side("sound", (bark,)),
        ),
        {"q2i": ("query", "image"), "a2q": ("sound", "query"), "i2i": ("image", "image")},
    )
    with open_database(project_url, create=True) as session:
        items.add_dataset(session, data, "0")
        session.commit()

        kept = items.dataset(session)
        stored = {
            name: session.execute(
                select(ItemRow.id, ItemRow.external_id, ItemRow.group_id).where(ItemRow.side_id == side)
            ).all()
            for name, side in kept.sides.items()
        }
        parts = {
            (part.side_id, part.item_id, part.place): Part(
                *(getattr(part, each.name) for each in fields(Part))
            )
            for part in session.scalars(select(PartRow))
        }

    assert kept.directions == data.directions
    assert list(stored) == ["image", "query", "sound"]
    assert stored == {
        "image": [(1, "boot.jpg", None), (2, "shoe.jpg", None)],
        "query": [(1, "q", 2)],
        "sound": [(1, "bark", None)],
    }
    numbered = zip(kept.sides.values(), ((boot, shoe), (wish,), (bark,)), strict=True)
    assert parts == {
        (side, number, place): part
        for side, listed in numbered
        for number, item in enumerate(listed, 1)
        for place, part in enumerate(item.parts, 1)
    }


def test_pairs_within_a_side_are_none_of_images_and_captions(project_url):
    """Two captions with the numbers of an image and a caption are another pair, asked and stored beside it."""
    texts = tuple(Item(name, (Part(PartKind.TEXT, name),), "1") for name in ("a", "b"))
    picture = Item("1", (Part(PartKind.IMAGE),))
    sides = (Side("image", (picture,)), Side("caption", texts, made_for="image"))
    ways = {"t2i": ("caption", "image"), "t2t": ("caption", "caption")}
    with open_database(project_url, create=True) as session:
        items.add_dataset(session, ItemSet("d", "by hand", IdKind.STRING, sides, ways), "0")
        captions = items.dataset(session).sides["caption"]

        usual = proposals.ensure_pairs(session, [Pair(1, 2)])
        within = proposals.ensure_pairs(session, [Pair(1, 2)], (captions, captions))

        assert pair_rows(session) == usual == {Pair(1, 2): 1}
        assert pair_rows(session, (captions, captions)) == within == {Pair(1, 2): 2}


@pytest.fixture
def old(tmp_path) -> Settings:
    """A project of an earlier version, its databases brought to the newest revision."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    settings = load(tmp_path / "project", environ={})
    upgrade(settings)
    return settings


def test_an_upgraded_database_holds_what_a_new_one_does(old, tmp_path):
    """The same world and the same proposals: the same items, parts, pairs and queries under the same numbers.

    Proposals were stored in the order of rankings, and are now stored by pair; nothing reads the numbers of their rows.
    """
    new = make_world(tmp_path / "new", n_images=12)
    run_propose(new, image_queries=4, caption_queries=6)
    before, after = (content(sqlite_url(made.project / "mitl.db")) for made in (old, new))

    for table in ("dataset", "side", "direction", "item", "part", "query"):
        assert before[table] == after[table], table
    stored = [
        sorted(tuple(value for name, value in row.items() if name != "id") for row in tables["proposal"])
        for tables in (before, after)
    ]
    assert stored[0] == stored[1]
    assert before["pair"][: len(after["pair"])] == after["pair"]
    assert verify(old).refusal is None


SAID_SINCE = {
    "by inner product or cosine": "by inner product",
    "a row for each annotator and direction.": "a row for each annotator that found the pair.",
    "What workers wrote of pairs is": "What workers wrote in their own words is",
    "matches among them that nothing else tells are": "matches among them are",
    "a worker has one throughout this release, and another in a release of another name.": (
        "the same worker has the same one throughout this release and no other."
    ),
    "People's answer where it makes the positive: yes or weak_yes; empty where others do.": (
        "The answer: yes, weak_yes, weak_no or no; empty where nobody was asked or nobody answered."
    ),
    ", as set at release": "",
    "Positive pairs of images and captions of": "Positive image-caption pairs of",
    " Earlier ratings, `cxc` in the tables, were given to the project in the layout of Crisscrossed Captions "
    "(Parekh et al., EACL 2021), whose own are free to use with acknowledgement; nothing here tells them from another "
    "lab's.": "",
    "earlier ratings call a match": "CxC rates as a match",
    "beats an earlier rating": "beats a CxC rating",
    "are, if earlier ratings are": "are, if CxC rates them",
    "nobody judged or rated was": "nobody judged and CxC did not rate was",
    "those of an earlier rating of 4.5 or more first, none of one below 3": (
        "those that CxC rates 4.5 or more first, none that CxC rates below 3"
    ),
    "people, earlier ratings and": "people, CxC and",
    "answers, earlier ratings and": "answers, CxC's ratings and",
    "are rated 3 or more": "are rated 3 or more by CxC",
    "judgement, cxc (earlier ratings in the layout of CxC), original": "judgement, cxc, original",
    "was set at release": "was set",
    "workers who submitted a HIT": "workers",
    "\n| … with answers in `judgements.parquet` | 1 |": "",
    " with answers in judgements.parquet;": ";",
}
"""Sentences of a release that became truer, and what they were."""


def test_a_release_of_an_upgraded_project_is_byte_for_byte_the_old_one(old, tmp_path):
    """Its positives, answers and pseudonyms; the words but for ``SAID_SINCE`` and what Croissant 1.1 says otherwise.

    So the manifest differs in the size and hash of the files in words, in the hash of the wording, which no HIT noted,
    and in that of the data set, which it names since.
    """
    was, now = old.project / "release", tmp_path / "release"
    build_dataset(old, now, SANDBOX)

    changed = ("README.md", "croissant.json", "datasheet.md", "manifest.json")
    names = [path.name for path in sorted(was.iterdir()) if path.name not in changed]

    assert sorted([*names, *changed]) == sorted(path.name for path in now.iterdir())
    assert filecmp.cmpfiles(was, now, names, shallow=False) == (names, [], [])
    manifests = [(folder / "manifest.json").read_text("utf-8") for folder in (was, now)]
    file = r'("(?:README.md|croissant.json|datasheet.md)": {\s+"bytes": )\d+(,\s+"sha256": )"[0-9a-f]{64}"'
    manifests = [re.sub(file, r"\1null\2null", text) for text in manifests]
    same, other = (
        re.sub(r'("template_sha256": )("[0-9a-f]{64}"|\[\])', r"\1null", text) for text in manifests
    )
    assert same == re.sub(r'  "dataset_sha256": "[0-9a-f]{64}",\n', "", other)
    texts = [[(folder / name).read_text("utf-8") for folder in (was, now)] for name in changed[:3]]
    for of_file in texts:
        for since, before in SAID_SINCE.items():
            of_file[1] = of_file[1].replace(since, before)
    page, (before, described), sheet = texts
    assert page[0] == page[1]
    assert sheet[0] == sheet[1]
    before, described = json.loads(before), json.loads(described)
    for one in (before, described):
        for entry in one["distribution"]:
            if entry["@id"] in changed:
                del entry["contentSize"], entry["sha256"]
    assert json_bytes(as_croissant_1_0(described)) == json_bytes(before)


def as_croissant_1_0(described):
    """The same with what 1.1 changed taken back, and nothing else."""
    for term in ("arrayShape", "containedIn", "description", "isArray", "name", "prov"):
        del described["@context"][term]
    described["conformsTo"].remove("http://mlcommons.org/croissant/1.1")
    described["conformsTo"].insert(0, "http://mlcommons.org/croissant/1.0")
    for field in (field for record_set in described["recordSet"] for field in record_set["field"]):
        if field.pop("isArray", False):
            assert field.pop("arrayShape") == "-1"
            field["repeated"] = True
        assert field.pop("equivalentProperty", "prov:wasAttributedTo") == "prov:wasAttributedTo"
    return {key: value for key, value in described.items() if not key.startswith("prov:")}


def test_the_loop_goes_on_in_an_upgraded_project(old):
    """What was out is harvested, what is missing is asked again, and status and report count both."""
    waiting = status(old, SANDBOX).counts
    harvested = harvest(old, SANDBOX)
    posted = run_publish(old)
    now = status(old, SANDBOX).counts
    shown = report(old)

    assert harvested.status == "done" and harvested.counts["fetched"] > 0
    assert posted.status in ("done", "nothing_to_do")
    assert waiting != now
    assert Path(shown.paths["report"]).stat().st_size > 10_000
