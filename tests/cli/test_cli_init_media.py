"""`mitl init --check-items` on sounds and videos: each file that is not as it should be, by name."""

from __future__ import annotations

import numpy as np
import pytest
from cli_kit import fails, ok
from media_kit import tone

from mitl.datasets import checking
from mitl.protocol.media import media_fault
from mitl.records import PartKind

av = pytest.importorskip("av", reason="the extra mitl[media] is missing")


def write_webm(path, shade):
    """Two seconds of noise of a shade, so that a part of the file is a part of the video."""
    rng = np.random.default_rng(shade)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for _ in range(20):
            picture = rng.integers(0, 2 + shade, (32, 32, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def table(own, column, names):
    """A caption for each file."""
    rows = "".join(f"{name},caption {place}\n" for place, name in enumerate(names))
    (own / "captions.csv").write_text(f"{column},caption\n{rows}")


def spoiled_sounds(own):
    """Whole, missing, cut off, empty, of another kind, silent and doubled."""
    names = [f"{place}.wav" for place in range(7)]
    table(own, "audio", names)
    for place, name in enumerate(names):
        (own / name).write_bytes(tone(0.5, level=1000 + place))
    (own / "1.wav").unlink()
    (own / "2.wav").write_bytes((own / "2.wav").read_bytes()[:3000])
    (own / "3.wav").write_bytes(b"")
    (own / "4.wav").write_bytes(b"<html>not found</html>")
    (own / "5.wav").write_bytes(tone(0.5, level=0))
    (own / "6.wav").write_bytes((own / "0.wav").read_bytes())


def test_sounds_that_are_not_as_they_should_be_are_named(own):
    """As warnings, a line each; the project is made all the same."""
    spoiled_sounds(own)
    found = ok("init", "project", "--dataset", "own", "--check-items", "--json").json

    assert [line.partition(": ")[::2] for line in found["warnings"]] == [
        ("sound '1.wav'", "there is no file '1.wav'"),
        ("sound '2.wav'", f"'{own}/2.wav' is cut off: its header tells 8,044 bytes, and it has 3,000"),
        ("sound '3.wav'", f"'{own}/3.wav' is empty"),
        ("sound '4.wav'", f"'{own}/4.wav' {media_fault(b'<html>', PartKind.AUDIO)}"),
        ("sound '5.wav'", f"'{own}/5.wav' is silent: every sample is zero"),
        ("sound '6.wav'", f"'{own}/6.wav' is the same sound as sound '0.wav'"),
    ]
    assert found["counts"]["pictures"] == {
        "missing": 1, "unreadable": 3, "silent": 1, "repeated": 1, "animated": 0,
    }  # fmt: skip
    text = ok("init", "other", "--dataset", "own", "--check-items").out
    assert "sounds that are silent" in text and "captions of a sound" in text


def test_videos_that_are_cut_off_or_spoiled_are_named(own):
    """A video that ends early is decoded to its end to be known."""
    names = [f"{place}.webm" for place in range(4)]
    table(own, "video", names)
    for place, name in enumerate(names):
        write_webm(own / name, 100 + place)
    whole = (own / "1.webm").read_bytes()
    (own / "1.webm").write_bytes(whole[: len(whole) // 2])
    (own / "2.webm").write_bytes(whole[:60])
    (own / "3.webm").write_bytes((own / "0.webm").read_bytes())
    lines = ok("init", "project", "--dataset", "own", "--check-items", "--json").json["warnings"]

    assert lines[0].startswith("video '1.webm': ") and "is cut off: it plays " in lines[0]
    assert lines[1].startswith("video '2.webm': ") and "2.webm' cannot be decoded: " in lines[1]
    assert lines[2].endswith("is the same video as video '0.webm'")


def test_without_decoders_headers_are_checked_and_that_is_said(own, monkeypatch):
    """Silence cannot be heard then."""
    monkeypatch.setattr(checking, "have_decoders", lambda: False)
    spoiled_sounds(own)
    lines = ok("init", "project", "--dataset", "own", "--check-items", "--json").json["warnings"]

    assert len(lines) == 6 and not any("silent" in line for line in lines)
    assert lines[-1] == checking.HEADERS_ONLY


def test_where_no_sound_can_be_used_nothing_is_made(own):
    """Exit status 1, one line, no project."""
    table(own, "audio", ["0.wav", "1.wav"])
    for place in range(2):
        (own / f"{place}.wav").write_bytes(b"no sound")
    message = fails(1, "init", "project", "--dataset", "own", "--check-items")

    assert message.startswith("none of the 2 sounds can be used, as sound '0.wav': ")
    assert "name their folder with --media" in message
    assert not (own.parent / "project").exists()


def test_a_sound_that_came_later_is_counted_as_a_sound(own):
    """A file put in place is taken by the same call again."""
    table(own, "audio", ["0.wav", "1.wav"])
    (own / "0.wav").write_bytes(tone(0.5, level=1000))
    words = ("init", "project", "--dataset", "own")
    ok(*words)
    (own / "1.wav").write_bytes(tone(0.5, level=2000))

    assert "own is loaded already; added 1 sound's place" in ok(*words).out
