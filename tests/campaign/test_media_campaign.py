"""Sounds, videos and composed queries through publishing and answering."""

from __future__ import annotations

import errno
import re
from types import SimpleNamespace

import httpx
import pandas as pd
import pytest
from desk_kit import open_desk
from media_kit import picture, proposed_media, tone
from sqlalchemy import func, select
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
from mitl.db.models import Assignment
from mitl.db.session import open_database
from mitl.db.store import items
from mitl.db.store.columns import judgement_columns
from mitl.errors import DatasetError, MitlError
from mitl.explorer.app import create_app as create_explorer
from mitl.explorer.sources import of_project
from mitl.hits.templates import load_template
from mitl.progress import no_progress
from mitl.protocol import media as formats
from mitl.records.enums import PartKind
from mitl.records.forms import COMPOSED, SOUNDS, VIDEOS
from mitl.records.questions import PLAYED
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reporting.report import report
from mitl.stages.reviewing.show import show
from mitl.stages.reviewing.workers import workers

RANGE = {"Range": "bytes=0-9"}


@pytest.fixture(scope="module", params=[SOUNDS, VIDEOS, COMPOSED], ids=lambda form: form.nouns[0])
def answered(request, tmp_path_factory):
    """A form, and a project of it whose pairs were posted, answered by people in haste, and read."""
    settings = proposed_media(tmp_path_factory.mktemp("media") / "p", request.param)
    result = run_publish(settings, probes=3)
    assert result.warnings == ()
    simulate(settings, SANDBOX, population="hasty", truth="original")
    harvest(settings, SANDBOX)
    return request.param, settings


def test_files_are_shown_under_keyed_names(answered):
    """Pictures as JPEG; sounds and videos are links to the files themselves."""
    form, settings = answered
    shown = list((settings.public / "i").iterdir())

    suffix = "jpg" if form is COMPOSED else "wav" if form is SOUNDS else "webm"
    assert {path.suffix for path in shown} == {f".{suffix}"}
    if form is not COMPOSED:
        original = {path.stat().st_ino for path in (settings.project / "media").iterdir()}
        assert {path.stat().st_ino for path in shown} <= original


def test_how_much_was_played_is_kept_and_released(answered):
    """As an answer of its own beside the label; composed queries have nothing to play."""
    form, settings = answered
    assert load_template(form.wording).questions == (() if form is COMPOSED else (PLAYED,))
    with open_database(settings.db_url, read_only=True) as session:
        answers = judgement_columns(session, SANDBOX, questions=[PLAYED])
        number = session.scalar(select(func.max(Assignment.id)))
    played = [value for mask in answers["played"] for value in (c.value for c in PLAYED.chosen(mask))]
    assert "100" in played if form is not COMPOSED else played == []

    build_dataset(settings, settings.project / "release", SANDBOX)
    released = pd.read_parquet(settings.project / "release" / "judgements.parquet")
    assert ("played" in released) == (form is not COMPOSED)
    people = workers(settings, SANDBOX)
    told = show(settings, number, SANDBOX)
    left, right = form.sides
    assert told.tables[0].columns[-2:] == (left, "description" if right == "caption" else right)
    assert ("played" in told.tables[0].columns) == (form is not COMPOSED)
    assert ("unplayed" in people.counts["rows"][0]) == (form is not COMPOSED)
    assert ("not played" in people.tables[1].columns) == (form is not COMPOSED)
    if form is not COMPOSED:
        shares = {row["unplayed"] for row in people.counts["rows"]}
        assert 0 < max(shares) < 1


def test_the_desk_and_the_explorer_show_what_people_saw(answered):
    """Players for sounds and videos with byte ranges, both images of a composed query."""
    form, settings = answered
    with open_database(settings.db_url, read_only=True) as session:
        number = session.scalar(select(func.max(Assignment.id)))
    with open_desk(settings) as desk:
        page = desk.get(f"/queue/{number}").text
        files = re.findall(r'(?:src|href)="(/image/\d+)"', page)
        part = desk.browser.get(desk.url + files[0], headers=RANGE)
    assert "nothing at hand to show" not in page
    assert len(part.content) == 10 and part.status_code == 206
    if form is COMPOSED:
        assert "First image at place 1" in page and part.headers["content-type"] == "image/png"
    else:
        tag, told = ("audio", "audio/wav") if form is SOUNDS else ("video", "video/webm")
        assert page.count(f"<{tag} ") >= 5 and part.headers["content-type"] == told
        assert "written for this image" not in page

    app = create_explorer("p", of_project(settings, SANDBOX))
    with RunningServer(app) as server, httpx.Client(base_url=server.url, trust_env=False) as explorer:
        pairs, item = explorer.get("/").text, explorer.get(f"/{form.sides[1]}/0").text
        assert explorer.get("/picture/0", headers=RANGE).status_code == 206
    if form is COMPOSED:
        assert 'alt="first image ' in pairs and 'alt="first image ' in item
    else:
        assert f"<{tag} src=" in pairs and f"<{tag} src=" in item


def test_the_report_speaks_of_the_items_by_name_and_plays_them(answered):
    form, settings = answered
    report(settings, settings.project / "report.html", SANDBOX)
    page = (settings.project / "report.html").read_text(encoding="utf-8")
    words = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL)

    if form is COMPOSED:
        assert "queries that search" in words and 'alt="image first"' in page
        return
    assert f"{form.nouns[0]} that search" in words
    assert not re.search(r"\bimages?\b", words)
    assert f"data:{'audio/wav' if form is SOUNDS else 'video/webm'};base64," in page


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
        DatasetError, match="has 200 MB, and workers are shown up to 200 MB: shorten or compress"
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
