"""A release is put on a hub by the hub's own client: whole, once, with a token that nobody reads."""

from __future__ import annotations

import pytest
from cli_kit import mitl, ok
from hub_kit import TOKEN, running_hub
from rating_kit import rated_world
from release_kit import audited_world, world

from mitl.positives.merging import MergeRules
from mitl.positives.rating_release import write_ratings
from mitl.positives.release import write_release
from mitl.records import several

huggingface_hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in that the client asks, a token, and a release in the current folder."""
    write_release(tmp_path / "release", audited_world())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running_hub() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HF_HUB_OFFLINE", False
        )  # whatever others imported it with
        yield hub


def contents(folder):
    """The bytes of each file."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_release_is_there_whole_and_private_and_a_second_push_does_nothing(hub, tmp_path):
    """In one commit; the token is said nowhere."""
    first = ok("push", "release", "--to", "hub:mine", "--json")
    repository = hub.repositories["me/mine"]
    commits = repository.commits
    second = ok("push", "release", "--to", "hub:mine", "--json", "-vv")

    assert first.json["status"] == "done" and second.json["status"] == "nothing_to_do"
    assert repository.files == {".gitattributes": b"", **contents(tmp_path / "release")}
    assert (repository.private, commits, repository.commits) == (True, 2, 2)
    assert first.json["paths"]["hub"] == f"{hub.url}/datasets/me/mine"
    assert first.json["counts"] == {
        "files": len(contents(tmp_path / "release")),
        "removed": 0,
        "private": True,
    }
    assert "No files have been modified" not in second.err
    assert any("sandbox" in one for one in first.json["warnings"])
    assert TOKEN not in "".join((first.out, first.err, second.out, second.err))


def test_a_newer_release_takes_the_place_of_an_older_one(hub, tmp_path):
    """What it lacks goes; a new repository of an owner's may be public."""
    ok("push", "release", "--to", "hub:lab/mine", "--public")
    write_release(tmp_path / "release", world(rules=MergeRules(strict=True)), replace=True)
    found = ok("push", "release", "--to", "hub:lab/mine", "--json").json

    repository = hub.repositories["lab/mine"]
    assert repository.files == {".gitattributes": b"", **contents(tmp_path / "release")}
    assert (found["counts"]["removed"], found["counts"]["private"], repository.private) == (4, False, False)


@pytest.mark.parametrize(
    ("theirs", "first"),
    [
        ({"theirs.csv": b"1"}, "theirs.csv"),
        ({"manifest.json": b'{"files": {"theirs.csv": 1}}', "theirs.csv": b"1"}, "manifest.json"),
        ({"manifest.json": b"no JSON"}, "manifest.json"),
    ],
)
def test_a_repository_that_holds_something_else_is_left_alone(hub, theirs, first):
    """Nobody's files are removed but those of a release, whatever their manifest is called."""
    ok("push", "release", "--to", "hub:mine")
    repository = hub.repositories["me/mine"]
    repository.files = dict(theirs)

    told = mitl("push", "release", "--to", "hub:mine").error
    assert f"holds {several(len(theirs), 'file')} of no release, first {first!r}" in told
    assert repository.files == theirs


def test_a_file_that_somebody_put_beside_a_release_is_not_removed(hub):
    """The release there is known by its manifest."""
    ok("push", "release", "--to", "hub:mine")
    repository = hub.repositories["me/mine"]
    repository.files["theirs.csv"] = b"1"

    assert (
        "holds 1 file of no release, first 'theirs.csv'" in mitl("push", "release", "--to", "hub:mine").error
    )
    assert repository.files["theirs.csv"] == b"1"


def test_a_release_of_ratings_is_pushed_without_what_a_download_left_in_its_folder(hub, tmp_path):
    """And pushed again it does nothing."""
    files = contents(write_ratings(tmp_path / "ratings", rated_world()).folder)
    (tmp_path / "ratings" / ".cache").mkdir()

    assert ok("push", "ratings", "--to", "hub:mine", "--json").json["counts"]["files"] == len(files)
    assert ok("push", "ratings", "--to", "hub:mine", "--json").json["status"] == "nothing_to_do"
    assert hub.repositories["me/mine"].files == {".gitattributes": b"", **files}


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        (401, "Invalid token hf_secretofmine", "answered 401: Invalid token …; make a token that may write"),
        (
            403,
            "Forbidden",
            "answered 403: Forbidden; make a token that may write there, or choose another name",
        ),
        (412, "changed", "answered 412: changed; somebody else changed it meanwhile: push again"),
        (507, "no room\nleft", "answered 507: no room left"),
    ],
)
def test_what_the_hub_refuses_is_told_in_one_line_without_the_token(hub, status, said, told):
    """And nothing of the release is there."""
    hub.refusal = status, said
    found = mitl("push", "release", "--to", "hub:mine")

    assert (found.status, told in found.error) == (1, True)
    assert TOKEN not in found.err and set(hub.repositories["me/mine"].files) == {".gitattributes"}


@pytest.mark.parametrize(
    ("reply", "told"), [(b"", "cannot be reached"), (b"{}", "speaks as no hub: KeyError")]
)
def test_a_commit_whose_reply_is_lost_is_not_told_as_none(hub, reply, told):
    """Or comes as what no hub says: one line, and the next push finds all of it there."""
    hub.lost_reply = reply
    found = mitl("push", "release", "--to", "hub:mine")
    hub.lost_reply = None

    assert (found.status, told in found.error, "push again" in found.error) == (1, True, True)
    assert hub.repositories["me/mine"].commits == 2
    assert ok("push", "release", "--to", "hub:mine", "--json").json["status"] == "nothing_to_do"


def test_a_wrong_token_is_refused_before_anything_is_made(hub, monkeypatch):
    """The hub says so."""
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    found = mitl("push", "release", "--to", "hub:mine")

    assert "answered 401" in found.error and "hf_wrong" not in found.err and not hub.repositories


def test_what_cannot_be_pushed_is_told_before_the_hub_is_asked(hub, tmp_path, monkeypatch):
    """A place that is none, a folder that is no release, a file that was changed, no token."""
    assert "write hub:NAME" in mitl("push", "release", "--to", "mine").error
    assert "no release folder" in mitl("push", "nope", "--to", "hub:mine").error
    (tmp_path / "release" / "notes.txt").write_text("mine")
    assert "notes.txt is not a file of the release" in mitl("push", "release", "--to", "hub:mine").error
    (tmp_path / "release" / "notes.txt").unlink()
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "set HF_TOKEN" in mitl("push", "release", "--to", "hub:mine").error
    assert hub.asked == []


def test_a_hub_that_may_not_be_asked_is_not(hub, monkeypatch):
    """HF_HUB_OFFLINE is kept to."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    assert "offline mode is enabled" in mitl("push", "release", "--to", "hub:mine").error
    assert hub.asked == []


def test_a_hub_that_does_not_answer_is_told_in_one_line(hub, monkeypatch):
    """With its address."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    found = mitl("push", "release", "--to", "hub:mine")

    assert "http://127.0.0.1:9" in found.error and TOKEN not in found.err
