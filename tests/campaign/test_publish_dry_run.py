"""A dry run: what it writes is what publishing sends, a server takes it as it is, and nothing is planned or posted."""

from __future__ import annotations

import json
import re
import shutil

import boto3
import pytest
from publish_kit import proposed
from world_kit import SANDBOX, run_publish, spoil

from mitl import resources
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.posting import annotation
from mitl.campaign.publish import publish
from mitl.crowd.endpoint import open_endpoint
from mitl.db.session import open_database
from mitl.db.store import hits
from mitl.errors import TemplateError, UsageError
from mitl.stages.reporting.status import status


@pytest.fixture
def world(tmp_path):
    """A project with proposals."""
    return proposed(tmp_path / "p")


def run_dry(settings, to=None, **campaign):
    """A dry run; the answer to its bill would be no."""
    return publish(settings, Campaign(SANDBOX, **campaign), confirm=lambda total: False, dry_run=True, to=to)


def read(folder):
    """The requests in the order of sending: operation and parameters."""
    files = sorted((folder / "requests").iterdir())
    return [
        (re.fullmatch(r"[0-9]{5}-(\w+)\.json", file.name)[1], json.loads(file.read_text("utf-8")))
        for file in files
    ]


def test_a_dry_run_plans_and_posts_nothing(world):
    """Not a HIT here, none on the server, no picture made public, and no number used up."""
    result = run_dry(world)

    assert result.status == "done"
    assert sum(status(world, SANDBOX).counts["hits"].values()) == 0
    with open_endpoint(world, SANDBOX) as endpoint:
        assert _boto(endpoint).list_hits()["HITs"] == []
    assert not (world.public / "i").exists()
    assert run_publish(world).counts["batch"] == "b1"


def test_every_request_is_what_publishing_sends(world):
    """The same questions, annotations, tokens and numbers of workers reach the server afterwards."""
    result = run_dry(world, assignments=2, reward_cents=70)
    written = [
        one for name, one in read(world.project / "dry-run") if name.startswith("CreateHITWithHITType")
    ]
    run_publish(world, assignments=2, reward_cents=70)

    assert len(written) == result.counts["hits"] == result.counts["requests"] - 2
    with open_database(world.db_url, read_only=True) as session:
        tokens = {annotation(world.project_id, hit): hit.token for hit in hits.hits(session, SANDBOX)}
    assert tokens == {one["RequesterAnnotation"]: one["UniqueRequestToken"] for one in written}
    with open_endpoint(world, SANDBOX) as endpoint:
        client = _boto(endpoint)
        listed = client.list_hits(MaxResults=100)["HITs"]
        posted = [client.get_hit(HITId=hit["HITId"])["HIT"] for hit in listed]
    fields = ("RequesterAnnotation", "Question", "MaxAssignments")
    assert _rows(posted, fields) == _rows(written, fields)
    assert {hit["Reward"] for hit in posted} == {"0.70"}


def _rows(requests, fields):
    return sorted(tuple(one[field] for field in fields) for one in requests)


def _boto(endpoint):
    return boto3.client(
        "mturk",
        endpoint_url=endpoint.url,
        region_name="us-east-1",
        aws_access_key_id=endpoint.keys.access_key,
        aws_secret_access_key=endpoint.keys.secret_key,
    )


def test_a_server_takes_the_requests_as_they_are_written(world):
    """Unmodified boto3 sends them one after the other; only the ids that a server gives are put in."""
    run_dry(world, pilot=2)
    ids = {}
    with open_endpoint(world, SANDBOX) as endpoint:
        client = _boto(endpoint)
        for number, (name, parameters) in enumerate(read(world.project / "dry-run"), start=1):
            words = json.dumps(parameters)
            for made, real in ids.items():
                words = words.replace(made, real)
            method = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=HIT)(?=[A-Z])", "_", name).lower()
            reply = getattr(client, method)(**json.loads(words))
            found = reply.get("QualificationType", {}).get("QualificationTypeId") or reply.get("HITTypeId")
            ids[f"{name.removeprefix('Create').upper()}{number}"] = found or ""
        listed = client.list_hits()["HITs"]

    assert len(listed) == 2
    assert {hit["Reward"] for hit in listed} == {"1.00"}


def test_the_pages_show_the_pictures_where_they_lie(world):
    """Each page opens from the disk: its pictures are files that are there."""
    result = run_dry(world)
    pages = sorted((world.project / "dry-run" / "pages").iterdir())

    assert len(pages) == result.counts["hits"]
    for page in pages:
        sources = re.findall(r'<img src="([^"]+)"', page.read_text("utf-8"))
        assert len(sources) == 20
        assert all((page.parent / source).is_file() for source in sources)


def test_the_bill_is_kept_beside_the_requests(world):
    """bill.txt holds the lines that were printed."""
    said = []
    publish(world, Campaign(SANDBOX), confirm=lambda total: False, announce=said.append, dry_run=True)

    assert (world.project / "dry-run" / "bill.txt").read_text("utf-8").splitlines() == said


def test_a_second_dry_run_replaces_the_first(world, tmp_path):
    """No request of the larger one is left among those of the smaller one; other files stay."""
    folder = tmp_path / "out"
    run_dry(world, to=folder)
    (folder / "notes.md").write_text("mine")
    first = read(folder)
    run_dry(world, to=folder, limit=18)

    assert len(read(folder)) == 3 < len(first)
    assert len(list((folder / "pages").iterdir())) == 1
    assert (folder / "notes.md").read_text() == "mine"


def test_a_dry_run_that_broke_off_is_replaced_by_the_next(world):
    """A wording whose page is too large stops one when its folder is made; once it is mended, the same command goes."""
    wording = world.wordings / "own"
    shutil.copytree(resources.folder("hit_templates") / "pairs-plain", wording)
    (wording / "instructions.html.j2").write_text("x" * 70_000)
    with pytest.raises(TemplateError, match="65,535"):
        run_dry(world, template="own")

    (wording / "instructions.html.j2").write_text("look")

    assert run_dry(world, template="own").counts["requests"] == len(read(world.project / "dry-run"))


def test_a_folder_with_something_else_is_left_alone(world, tmp_path):
    """It is named, and nothing is written into it."""
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("words")

    with pytest.raises(UsageError, match="something else than a dry run"):
        run_dry(world, to=folder)

    assert [file.name for file in folder.iterdir()] == ["chapter.tex"]


def test_a_picture_that_is_none_is_found_where_it_lies(world):
    """A dry run makes nothing public, so it looks at the files."""
    for file in (world.project / "dataset" / "images").iterdir():
        spoil(file, b"not a picture")

    (warning,) = run_dry(world).warnings

    assert re.search(r"image '\d+': .* is not a picture", warning)
    assert run_dry(world, probes=0).warnings == ()
