"""Pictures are fetched as a worker's browser would before anybody is asked to look at them."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from crowd_kit import give_keys
from media_kit import jpeg
from PIL import Image
from publish_kit import proposed
from tls_kit import Authority
from world_kit import SANDBOX, spoil

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.pages import picture_sources, probe_pictures
from mitl.campaign.publish import publish
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import items
from mitl.errors import DatasetError, SettingsError
from mitl.progress import no_progress
from mitl.records import Environment, ImageItem
from mitl.settings import load
from mitl.stages.reporting.status import status


@pytest.fixture
def pictures():
    """A web server with good and bad addresses, and how often each was asked for."""
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked[self.path] += 1
            status, kind, body = 200, "image/jpeg", jpeg("red")
            if self.path == "/gone.jpg":
                status = 404
            elif self.path == "/busy.jpg" and asked[self.path] == 1:
                status = 503
            elif self.path == "/page.jpg":
                kind, body = "text/html", b"<p>sign in"
            elif self.path == "/cut.jpg":
                body = body[:40]
            elif self.path == "/moved.jpg":
                status = 302
            elif self.path in ("/endless.jpg", "/moved-endless.jpg"):
                self._send_for_ever(302 if "moved" in self.path else 200)
                return
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if status == 302:
                self.send_header("Location", "/new.jpg")
            self.end_headers()
            self.wfile.write(body)

        def _send_for_ever(self, status):
            """Until the other side hangs up."""
            self.send_response(status)
            self.send_header("Content-Type", "image/jpeg")
            self.send_header("Location", "/new.jpg")
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(bytes(1 << 16))

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("path", ["/good.jpg", "/busy.jpg", "/moved.jpg", "/moved-endless.jpg"])
def test_a_picture_that_comes_is_enough(pictures, path):
    """Also where the store was busy at first, or the picture has moved, whatever the store says to that."""
    base, asked = pictures

    assert probe_pictures({"7": path}, base, 5, seed=0) == 1
    assert asked[path] >= 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/gone.jpg", "answers 404"),
        ("/page.jpg", "gives text/html, not a picture"),
        ("/cut.jpg", "that are not a picture"),
        ("/endless.jpg", "gives 50 MB or more, too much for a page"),
    ],
)
def test_a_picture_that_does_not_show_is_named(pictures, path, said):
    """Its image's id, its address, what came, and what to do."""
    base, _ = pictures

    with pytest.raises(DatasetError, match="could not see image '7': ") as raised:
        probe_pictures({"7": path}, base, 5, seed=0)

    assert f"{base}{path} " in str(raised.value)
    assert said in str(raised.value)
    assert "--probe-images 0" in str(raised.value)


def test_a_picture_that_drips_is_given_up(pictures, monkeypatch):
    """Each piece comes in time, and there is always one more."""
    base, _ = pictures
    monkeypatch.setattr("mitl.campaign.media.WITHIN_S", 0.0)

    with pytest.raises(DatasetError, match=r"cannot be fetched \(ReadTimeout: only .* bytes came in 0 s\)"):
        probe_pictures({"7": "/endless.jpg"}, base, 1, seed=0)


def test_an_https_address_does_not_lead_into_the_network(pictures, tmp_path, monkeypatch):
    """A picture's host sends us on to plain HTTP, as what listens within a network speaks: nobody is asked there.

    SSL_CERT_FILE counts for a host on this machine too.
    """
    base, asked = pictures
    authority = Authority(tmp_path / "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))

    async def moved(scope, receive, send):
        await send(
            {
                "type": "http.response.start",
                "status": 302,
                "headers": [(b"location", f"{base}/inner".encode())],
            }
        )
        await send({"type": "http.response.body"})

    with (
        RunningServer(moved, tls=authority.sign("host", "IP:127.0.0.1")) as host,
        pytest.raises(DatasetError, match=f"leads on to {base}/inner, but pages need https"),
    ):
        probe_pictures({"7": f"{host.url}/a.jpg"}, base, 1, seed=0)

    assert asked == {}


def test_nobody_there_is_one_line(pictures):
    """An address where nothing listens; it may be a tunnel that leads to a server elsewhere."""
    with pytest.raises(
        DatasetError, match=r"cannot be fetched .* set image_base_url in \[crowd\] of mitl.toml"
    ):
        probe_pictures({"7": "/a.jpg"}, "http://127.0.0.1:1", 1, seed=0)


def test_an_address_without_a_host_that_can_be_is_one_line():
    """DNS cannot even be asked about it, whoever leads there."""
    with pytest.raises(DatasetError, match=r"'7': https://pics\.\.example/a\.jpg cannot be fetched"):
        probe_pictures({"7": "https://pics..example/a.jpg"}, "", 1, seed=0)


def test_a_sample_is_fetched_and_no_more(pictures):
    """As many as asked for, chosen by the seed."""
    base, asked = pictures
    sources = {str(n): f"/{n}.jpg" for n in range(40)}

    assert probe_pictures(sources, base, 5, seed=0) == 5
    assert len(asked) == 5
    assert probe_pictures(sources, base, 5, seed=0) == 5
    assert len(asked) == 5
    assert probe_pictures(sources, base, 0, seed=0) == 0


def _publish(settings, environment):
    """Post to an environment where nothing costs; every picture is fetched first."""
    free = replace(settings, wage_floor_cents=0)
    campaign = Campaign(environment, limit=18, reward_cents=0, probes=1000)
    return publish(free, campaign, confirm=lambda total: True)


@pytest.fixture
def spoiled(tmp_path):
    """Makes a project whose pictures were made public for one environment, and then damaged."""

    def make(first):
        settings = proposed(tmp_path / "p")
        _publish(settings, first)
        for file in (settings.public / "i").iterdir():
            spoil(file, b"cut off")
        return settings

    return make


def test_with_real_money_pictures_that_do_not_show_stop_the_run(spoiled):
    """Nothing is planned; once the pictures are there again, the same command posts."""
    shown, live = spoiled(SANDBOX), Environment.LIVE

    with pytest.raises(DatasetError, match="could not see image"):
        _publish(shown, live)

    assert status(shown, live).counts["hits"]["planned"] == 0
    for file in (shown.public / "i").iterdir():
        file.unlink()
    assert _publish(shown, live).status == "done"


def test_in_practice_they_are_a_warning(spoiled):
    """Scripted workers see no pictures, and a machine without a network can still rehearse."""
    result = _publish(spoiled(Environment.LIVE), SANDBOX)

    assert result.counts["hits_posted"] == 1
    (warning,) = result.warnings
    assert "could not see image" in warning and warning.endswith("--probe-images 0")


def test_a_server_on_this_machine_is_near_whatever_its_port(tmp_path, monkeypatch):
    """A second project's server, named by its address, shows pictures from disk as the usual one does."""
    settings = proposed(tmp_path / "p")
    engine = make_engine(settings.crowd_db_url)
    with RunningServer(create_app(engine, public=[settings.public])) as server:
        give_keys(engine, monkeypatch)
        there = replace(settings, endpoint=server.url, endpoint_environment=SANDBOX)

        done = _publish(there, SANDBOX)

    engine.dispose()
    assert (done.counts["hits_posted"], done.warnings) == (1, ())
    with (
        open_database(settings.db_url, read_only=True) as session,
        pytest.raises(SettingsError, match="image_base_url"),
    ):
        images = items.images(session, items.dataset(session).id, settings.project)
        picture_sources(replace(settings, endpoint="https://crowd.example.org"), images, no_progress)


@pytest.mark.parametrize(
    "address",
    [
        *("http://x.org/a.jpg", "//x.org/a.jpg", "ftp://x.org/a", "/i/a.jpg", "a.jpg", "javascript:alert(1)"),
        *(
            "data:image/png;base64,AA",
            "https:///a.jpg",
            "https://x.org/a b.jpg",
            "https://x\\a",
            "https://[x/a.jpg",
        ),
    ],
)
def test_an_address_that_browsers_block_is_named_with_its_image(tmp_path, address):
    """It may come from anybody's table; the rule holds for the folder's own address too."""
    settings = load(tmp_path, environ={})

    with pytest.raises(DatasetError, match=r"image 'a': no file is known and .* is no https address"):
        picture_sources(settings, [ImageItem(0, "a", None, address)], no_progress)
    far = replace(settings, endpoint="https://crowd.example.org", image_base_url=address)
    with pytest.raises(SettingsError, match="pages need https"):
        picture_sources(far, [ImageItem(0, "a", None, "https://x.org/a.jpg")], no_progress)


def test_pictures_are_shown_upright_and_on_white_and_as_they_are_now(tmp_path):
    """A camera's turn is applied, a mended file is shown anew."""
    settings = load(tmp_path, environ={})
    camera, clear = tmp_path / "camera.jpg", tmp_path / "clear.png"
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.new("RGB", (40, 20)).save(camera, exif=turned)
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(clear)
    images = [ImageItem(n, path.name, path, None) for n, path in enumerate((camera, clear))]

    def shown():
        sources = picture_sources(settings, images, no_progress)
        found = []
        for source in sources.values():
            with Image.open(settings.public / source.lstrip("/")) as picture:
                found.append((picture.size, picture.getpixel((4, 4))))
        return found

    assert shown() == [((20, 40), (0, 0, 0)), ((8, 8), (255, 255, 255))]

    Image.new("RGB", (30, 30)).save(camera)
    os.utime(camera, (time.time() + 60,) * 2)
    assert [size for size, _ in shown()] == [(30, 30), (8, 8)]


def test_a_disk_that_fills_up_leaves_no_half_of_a_picture(tmp_path):
    """What could not be written is named, and nothing hidden stays in the folder that is served."""
    settings = load(tmp_path, environ={})
    settings.secret()
    Image.effect_noise((400, 400), 100).save(tmp_path / "noise.png")
    images = [ImageItem(0, "noise", tmp_path / "noise.png", None)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            picture_sources(settings, images, no_progress)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, kept)

    assert caught.value.filename.startswith(str(settings.public))
    assert list((settings.public / "i").iterdir()) == []


def test_a_picture_too_large_to_open_is_named_before_anything_is_written(tmp_path):
    """A dry run looks at the files where they lie."""
    Image.new("1", (20_000, 10_000)).save(tmp_path / "big.png")

    with pytest.raises(DatasetError, match=r"workers could not see image 'big': .* exceeds limit"):
        probe_pictures({"big": "/i/big.jpg"}, "", 1, seed=0, files={"big": tmp_path / "big.png"})
