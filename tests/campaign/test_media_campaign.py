"""Sounds, videos and composed queries through publishing and answering."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
from media_kit import picture, proposed_media, tone
from world_kit import SANDBOX, run_publish

from mitl.campaign import media
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.media import suffix_of
from mitl.campaign.pages import picture_sources, probe_pictures
from mitl.campaign.publish import publish
from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import items
from mitl.db.store.columns import judgement_columns
from mitl.errors import DatasetError, MitlError
from mitl.hits.templates import load_template
from mitl.progress import no_progress
from mitl.protocol import media as formats
from mitl.records.enums import PartKind
from mitl.records.forms import COMPOSED, SOUNDS, VIDEOS
from mitl.records.questions import PLAYED
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

FORMS = pytest.mark.parametrize("form", [SOUNDS, VIDEOS, COMPOSED], ids=["sounds", "videos", "composed"])


@FORMS
def test_pages_are_posted_answered_and_read(tmp_path, form):
    """The form's own wording shows the files under keyed names; how much was played is kept where something plays."""
    settings = proposed_media(tmp_path / "p", form)
    result = run_publish(settings, probes=3)
    assert result.warnings == ()

    suffix = "jpg" if form is COMPOSED else "wav" if form is SOUNDS else "webm"
    shown = list((settings.public / "i").iterdir())
    assert {path.suffix for path in shown} == {f".{suffix}"}
    if form is not COMPOSED:
        original = {path.stat().st_ino for path in (settings.project / "media").iterdir()}
        assert {path.stat().st_ino for path in shown} <= original
    simulate(settings, SANDBOX, population="careful", truth="original")
    harvest(settings, SANDBOX)

    asked = load_template(form.wording).questions
    assert asked == (() if form is COMPOSED else (PLAYED,))
    with open_database(settings.db_url, read_only=True) as session:
        answers = judgement_columns(session, SANDBOX, questions=[PLAYED])
    assert len(answers)
    end = PLAYED.bits(["100"])
    assert set(answers["played"]) == ({0} if form is COMPOSED else {end})


def test_a_file_that_browsers_do_not_play_is_named_before_anything_is_posted(tmp_path):
    """What it would have to be, in words; also what is too large."""
    settings = proposed_media(tmp_path / "p", SOUNDS)
    for path in (settings.project / "media").iterdir():
        path.unlink()
        path.write_bytes(b"FORM0000AIFF")

    with pytest.raises(
        DatasetError, match=r"sounds cannot be shown: sound '\d+': .* not a sound that browsers play"
    ):
        run_publish(settings)
    assert not (settings.public / "i").exists()


def test_a_sound_that_is_too_large_is_refused_in_words(tmp_path):
    path = tmp_path / "long.wav"
    path.write_bytes(tone(0.5))
    with path.open("r+b") as file:
        file.truncate(formats.MAX_MEDIA_BYTES + 1)  # a hole: no disk is filled

    with pytest.raises(
        DatasetError, match="it has 200 MB, and workers are shown up to 200 MB: shorten or compress"
    ):
        suffix_of(path, PartKind.AUDIO)


def test_a_file_on_another_file_system_is_copied(tmp_path, monkeypatch):
    """Where no hard link can be made."""
    settings = proposed_media(tmp_path / "p", SOUNDS)

    def refused(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with open_database(settings.db_url) as session:
        sounds = items.images(session, items.dataset(session).id, settings.project)

    monkeypatch.setattr(media, "os", SimpleNamespace(link=refused))
    sources = picture_sources(settings, sounds, no_progress)

    first = sounds[0]
    assert first.path is not None
    copy = settings.public / sources[first.id].lstrip("/")
    assert copy.read_bytes() == first.path.read_bytes() and copy.stat().st_nlink == 1
    assert [path.name for path in copy.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (tone(0.3), PartKind.AUDIO, None),
        (picture(0.1), PartKind.AUDIO, "not a sound or video"),
        (tone(0.3), PartKind.VIDEO, "not a video that browsers play: mp4, webm"),
    ],
    ids=["sound", "picture", "sound-as-video"],
)
def test_the_beginning_of_a_sound_or_video_is_fetched_as_players_do(tmp_path, content, kind, said):
    (tmp_path / "a.wav").write_bytes(content)
    engine = make_engine(f"sqlite:///{tmp_path}/crowd.db")
    admin.prepare(engine)
    with RunningServer(create_app(engine, public=[tmp_path])) as server:
        if said is None:
            assert probe_pictures({"7": "/i/a.wav"}, server.url, 1, seed=0, kind=kind) == 1
        else:
            sense = "hear sound" if kind is PartKind.AUDIO else "see video"
            with pytest.raises(DatasetError, match=f"could not {sense} '7'.*{said}"):
                probe_pictures({"7": "/i/a.wav"}, server.url, 1, seed=0, kind=kind)
    engine.dispose()


def test_a_wording_of_another_form_is_refused_by_name(tmp_path):
    settings = proposed_media(tmp_path / "p", SOUNDS)

    with pytest.raises(MitlError, match=r"'pairs-videos' shows videos and captions.*sounds and captions"):
        publish(settings, Campaign(SANDBOX, template="pairs-videos"), confirm=lambda total: True)
