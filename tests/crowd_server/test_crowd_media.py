"""Sounds and videos over HTTP: byte ranges as players ask for them, by what a file holds and not by its name."""

from __future__ import annotations

import httpx
import pytest
from crowd_kit import running_crowd
from media_kit import tone

from mitl.crowd_server import media

pytest_plugins = ("crowd_fixtures",)

SOUND = tone(0.5)
LAST = len(SOUND) - 1
LARGE = b"\x89PNG\r\n\x1a\n" + bytes(media.WHOLE)


@pytest.fixture
def get(crowd_engine, tmp_path):
    """Asks a server for a file of its public folder."""
    folder = tmp_path / "public"
    (folder / "i").mkdir(parents=True)
    (folder / "i" / "a.wav").write_bytes(SOUND)
    (folder / "i" / "odd.mp3").write_bytes(SOUND)
    (folder / "i" / "large.png").write_bytes(LARGE)
    (folder / "i" / "page.wav").write_bytes(b"<script>alert(1)</script>")
    (folder / "i" / "link.wav").symlink_to(folder / "i" / "a.wav")
    with (folder / "i" / "huge.wav").open("wb") as file:
        file.write(SOUND)
        file.truncate(media.MAX_MEDIA_BYTES + 1)  # a hole: no disk is filled
    with running_crowd(crowd_engine, folder) as crowd:

        def asked(name: str, method: str = "GET", **headers: str) -> httpx.Response:
            return httpx.request(method, f"{crowd.url}/i/{name}", headers=headers, trust_env=False)

        yield asked


def test_a_sound_comes_whole_with_what_players_and_caches_need(get):
    reply = get("a.wav")

    assert (reply.status_code, reply.content) == (200, SOUND)
    assert reply.headers["content-type"] == "audio/wav"
    assert reply.headers["accept-ranges"] == "bytes"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "max-age" in reply.headers["cache-control"]
    assert get("a.wav", **{"If-None-Match": reply.headers["etag"]}).status_code == 304
    assert get("odd.mp3").headers["content-type"] == "audio/wav"


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        ("bytes=0-99", 0, 99),
        ("bytes=100-", 100, LAST),
        ("bytes=-10", LAST - 9, LAST),
        (f"bytes=5-{LAST + 9}", 5, LAST),
    ],
)
def test_a_range_is_answered_with_its_bytes(get, wanted, first, last):
    reply = get("a.wav", Range=wanted)

    assert (reply.status_code, reply.content) == (206, SOUND[first : last + 1])
    assert reply.headers["content-range"] == f"bytes {first}-{last}/{len(SOUND)}"
    assert reply.headers["content-type"] == "audio/wav"


def test_a_large_picture_is_not_held_in_memory_for_slow_readers(get):
    """It is streamed as sounds are, which players may also ask for in parts."""
    reply = get("large.png")

    assert (reply.status_code, reply.content, reply.headers["content-type"]) == (200, LARGE, "image/png")
    assert get("large.png", Range="bytes=0-7").content == LARGE[:8]


def test_a_range_behind_the_end_is_refused_with_the_size(get):
    reply = get("a.wav", Range=f"bytes={len(SOUND)}-")

    assert reply.status_code == 416
    assert reply.headers["content-range"] == f"bytes */{len(SOUND)}"


def test_a_range_of_another_version_comes_whole(get):
    """If-Range: a player that goes on after the file was changed must not join two files."""
    etag = get("a.wav").headers["etag"]

    assert get("a.wav", Range="bytes=0-9", **{"If-Range": etag}).status_code == 206
    assert get("a.wav", Range="bytes=0-9", **{"If-Range": '"other"'}).content == SOUND


def test_the_head_alone_tells_the_size(get):
    reply = get("a.wav", "HEAD")

    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-length"] == str(len(SOUND))


@pytest.mark.parametrize("name", ["page.wav", "link.wav", "huge.wav", "none.wav", ".a.wav", "a.wav.txt"])
def test_what_is_no_sound_a_link_or_too_large_is_not_served(get, name):
    assert get(name).status_code == 404
