"""Which server a command talks to, and with whose keys."""

from __future__ import annotations

import contextlib
import json
import shutil
import stat
import tomllib
from functools import partial

import httpx
import pytest
from crowd_kit import Crowd, ManualClock, give_keys, post_hit, question, refusal
from process_kit import free_port
from sqlalchemy import create_engine, text

from mitl.crowd.endpoint import open_endpoint
from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer, bind, serve
from mitl.db.engine import make_engine, parse_url
from mitl.errors import EndpointError, SettingsError, UsageError
from mitl.records import Environment
from mitl.settings import load

pytest_plugins = ("crowd_fixtures",)

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE


def settings_of(folder, **options):
    """Settings of a project folder, whatever this machine's environment says."""
    return load(folder, environ={}, **options)


def port_of(server):
    """A running server's port."""
    return int(server.url.rpartition(":")[2])


def test_without_a_server_one_runs_for_the_block(tmp_path):
    """It answers within the block, keeps its state in crowd.db, and is gone afterwards."""
    settings = settings_of(tmp_path)

    with open_endpoint(settings, SANDBOX, port=free_port()) as endpoint:
        assert endpoint.in_process and not endpoint.charges_fee
        assert endpoint.client().balance() == 1_000_000
        qualification = endpoint.client().create_qualification_type("n", "d")
        health = httpx.get(endpoint.url + "/healthz", trust_env=False).json()
        assert health["server_id"] == endpoint.server_id

    with pytest.raises(httpx.ConnectError):
        httpx.get(endpoint.url, trust_env=False)
    with open_endpoint(settings, SANDBOX, port=free_port()) as again:
        assert again.server_id == endpoint.server_id
        assert again.client().find_qualification_type("n") == qualification


def test_what_a_server_within_is_told_of_money_outlives_a_power_cut(tmp_path):
    """SQLite waits for the disk at each commit; practice money does without."""
    settings = settings_of(tmp_path)
    for environment in Environment:
        with open_endpoint(settings, environment, port=free_port()) as endpoint:
            assert endpoint._engine is not None
            with endpoint._engine.connect() as connection:
                waits = connection.scalar(text("PRAGMA synchronous")) == 2
        assert waits is (environment is LIVE)


def test_allowed_hosts_of_the_project_reach_the_server_within(tmp_path):
    """A page may load from them without `mitl serve`; what is not a host is told before anything runs."""
    config = tmp_path / "mitl.toml"
    config.write_text('[crowd]\nallowed_hosts = ["CDN.example.org"]\n')
    page = "<script src=https://{}/x.js></script><form><input name=q></form>"
    with (
        open_endpoint(settings_of(tmp_path), SANDBOX, port=free_port()) as endpoint,
        contextlib.ExitStack() as stack,
    ):
        crowd = Crowd(endpoint.url, make_engine(settings_of(tmp_path).crowd_db_url), ManualClock(), stack)
        hit = post_hit(crowd.boto(), Question=question(page.format("cdn.example.org")))
        _, told = refusal(
            partial(post_hit, crowd.boto()), Question=question(page.format("other.example.org"))
        )
        crowd.engine.dispose()
    config.write_text('[crowd]\nallowed_hosts = ["https://cdn.example.org"]\n')

    with (
        pytest.raises(
            SettingsError, match=r"crowd\.allowed_hosts names 'https://cdn\.example\.org'; give a bare"
        ),
        open_endpoint(settings_of(tmp_path), SANDBOX, port=free_port()),
    ):
        pass
    assert hit["HITId"] and "https://other.example.org/x.js (script)" in told


def test_a_running_server_over_the_same_database_is_used(crowd_engine, tmp_path):
    """`mitl serve` for this crowd.db answers: no second server is started."""
    with (
        RunningServer(create_app(crowd_engine)) as server,
        open_endpoint(settings_of(tmp_path), LIVE, port=port_of(server)) as endpoint,
    ):
        assert endpoint.url == server.url
        assert not endpoint.in_process
        assert endpoint.client().balance() == 0


def test_a_running_server_over_another_database_is_left_alone(crowd_engine, tmp_path):
    """Another project's server on the default port is not ours."""
    other = make_engine(f"sqlite:///{tmp_path / 'other' / 'crowd.db'}")
    with (
        RunningServer(create_app(other)) as server,
        open_endpoint(settings_of(tmp_path), SANDBOX, port=port_of(server)) as endpoint,
    ):
        assert endpoint.in_process
        assert endpoint.server_id == admin.server_id(crowd_engine)
    other.dispose()


def test_a_running_server_over_a_copy_of_the_database_is_left_alone(crowd_engine, tmp_path):
    """What is tried in a copy of a project is not posted where people work, though both servers have one id."""
    copy = tmp_path / "copy" / "crowd.db"
    copy.parent.mkdir()
    shutil.copy(crowd_engine.url.database, copy)
    with (
        RunningServer(create_app(crowd_engine)) as server,
        open_endpoint(settings_of(copy.parent), LIVE, port=port_of(server)) as endpoint,
    ):
        assert endpoint.in_process
        assert endpoint.server_id == admin.server_id(crowd_engine)


def test_who_repeats_what_a_server_said_is_left_alone(crowd_engine, tmp_path):
    """Another program at the address of a server that was stopped."""
    with RunningServer(create_app(crowd_engine)) as server:
        said = httpx.get(server.url + "/healthz", trust_env=False).content

    async def imitate(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said})

    with (
        RunningServer(imitate) as imitator,
        open_endpoint(settings_of(tmp_path), LIVE, port=port_of(imitator)) as endpoint,
    ):
        assert endpoint.in_process


@pytest.mark.postgres
def test_a_database_of_postgresql_is_told_from_its_copy(postgres_url):
    """By all who reach it, and by nobody else."""
    name = f"copy_{parse_url(postgres_url).database}"
    engine = make_engine(postgres_url)
    admin.prepare(engine)
    place, server_id = admin.place(engine, "?"), admin.server_id(engine)
    engine.dispose()  # which leaves the engine as a new one; a template may have no connection
    again = admin.place(engine, "?")
    engine.dispose()
    server = create_engine(parse_url(postgres_url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {parse_url(postgres_url).database}"))
        copy = make_engine(parse_url(postgres_url).set(database=name).render_as_string(hide_password=False))
        elsewhere, same_id = admin.place(copy, "?"), admin.server_id(copy) == server_id
        copy.dispose()
        connection.execute(text(f"DROP DATABASE {name}"))
    server.dispose()

    assert same_id
    assert place == again != elsewhere


def test_the_default_endpoints_keys_are_kept_privately(tmp_path):
    """credentials.toml holds both pairs, for its owner alone, and is mended when it was opened up."""
    path = tmp_path / "credentials.toml"
    settings = settings_of(tmp_path)
    with open_endpoint(settings, SANDBOX, port=free_port()) as endpoint:
        pass
    path.chmod(0o644)

    with open_endpoint(settings, SANDBOX, port=free_port()):
        pass

    kept = tomllib.loads(path.read_text())
    engine = make_engine(settings.crowd_db_url)
    pairs = admin.keys(engine)
    engine.dispose()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept["server_id"] == endpoint.server_id
    for environment in Environment:
        pair = kept[environment.value]
        assert (pair["access_key"], pair["secret_key"]) == pairs[environment]
    assert pairs[SANDBOX][1] not in repr(endpoint)


def test_a_replaced_crowd_database_is_reported(tmp_path):
    """The project's HITs are on the server that it knew."""
    settings = settings_of(tmp_path)
    with open_endpoint(settings, SANDBOX, port=free_port()):
        pass
    for file in tmp_path.glob("crowd.db*"):
        file.unlink()

    with (
        pytest.raises(EndpointError, match=r"restore that crowd\.db") as caught,
        open_endpoint(settings, SANDBOX, port=free_port()),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"= nonsense", b"\xff\xfe\x00"], ids=["text", "bytes"])
def test_broken_credentials_are_reported(tmp_path, content):
    """A file that is not TOML is named."""
    (tmp_path / "credentials.toml").write_bytes(content)

    with (
        pytest.raises(SettingsError, match=r"credentials\.toml is not TOML"),
        open_endpoint(settings_of(tmp_path), SANDBOX, port=free_port()),
    ):
        pass


def test_an_explicit_endpoint_never_falls_back(tmp_path):
    """Nothing answers there: an error, and no server of our own."""
    settings = settings_of(tmp_path, endpoint_url=f"http://127.0.0.1:{free_port()}")

    with pytest.raises(EndpointError, match="nothing answers"), open_endpoint(settings, LIVE):
        pass
    assert not (tmp_path / "crowd.db").exists()


@pytest.mark.parametrize("host", ["crowd..example", "xn--", "\N{SNOWMAN}.example", f"{'a' * 64}.example"])
def test_a_host_that_has_no_such_name_is_not_an_endpoint(tmp_path, host):
    """What DNS could not be asked about is a slip of the pen."""
    settings = settings_of(tmp_path, endpoint_url=f"http://{host}:8000")

    with pytest.raises(EndpointError, match="is not an endpoint; write http"), open_endpoint(settings, LIVE):
        pass


def test_an_explicit_endpoint_takes_the_aws_chain(crowd, tmp_path, monkeypatch):
    """Its keys come from the environment; it is told from a service that charges by what it says."""
    give_keys(crowd.engine, monkeypatch, LIVE)
    project = tmp_path / "project"
    project.mkdir()

    with open_endpoint(settings_of(project, endpoint_url=crowd.url + "/"), LIVE) as endpoint:
        assert endpoint.client().balance() == 0
        assert (endpoint.charges_fee, endpoint.in_process) == (False, False)
        assert endpoint.server_id == admin.server_id(crowd.engine)
        with pytest.raises(UsageError, match="mitl crowd invite"):
            endpoint.invite(1)
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    "said", [{}, {"server_id": 7, "charges_fee": "no"}, {"charges_fee": None}, ["no"], 7]
)
def test_what_a_server_says_of_itself_is_not_trusted_unseen(tmp_path, said):
    """An id is a text; only where a server says in so many words that it takes no fee is none reckoned with."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(said).encode()})

    with (
        RunningServer(app) as server,
        open_endpoint(settings_of(tmp_path, endpoint_url=server.url), LIVE) as endpoint,
    ):
        assert (endpoint.server_id, endpoint.charges_fee) == (None, True)


def test_an_explicit_endpoint_has_one_environment(crowd, tmp_path):
    """Declared live by default, it is not asked for the sandbox."""
    settings = settings_of(tmp_path, endpoint_url=crowd.url)

    with pytest.raises(UsageError, match="--live"), open_endpoint(settings, SANDBOX):
        pass


def test_a_pinned_server_must_be_the_one(crowd, tmp_path):
    """[crowd] server_id names the server that is expected."""
    (tmp_path / "mitl.toml").write_text(f'[crowd]\nendpoint = "{crowd.url}"\nserver_id = "another"\n')

    with pytest.raises(EndpointError, match="expects another"), open_endpoint(settings_of(tmp_path), LIVE):
        pass


@pytest.mark.parametrize("url", ["localhost:8765", "ftp://x", "http://", "http://[::1", "http://x:99999"])
def test_an_address_that_is_none_is_refused(tmp_path, url):
    """The message shows what an address looks like."""
    with (
        pytest.raises(EndpointError, match="http://host:port"),
        open_endpoint(settings_of(tmp_path, endpoint_url=url), LIVE),
    ):
        pass


def test_amazon_is_taken_at_its_word(tmp_path):
    """Amazon's hosts are not probed; they charge their fee."""
    url = "https://mturk-requester.us-east-1.amazonaws.com"

    with open_endpoint(settings_of(tmp_path, endpoint_url=url), LIVE) as endpoint:
        assert endpoint.charges_fee
        assert endpoint.server_id is None


def test_workers_are_invited_by_link(tmp_path):
    """Each link lets one new worker in."""
    with open_endpoint(settings_of(tmp_path), SANDBOX, port=free_port()) as endpoint:
        links = endpoint.invite(3)
        replies = [httpx.get(link, follow_redirects=True, trust_env=False) for link in links]

    assert len(set(links)) == 3
    # httpx.get keeps cookies along its redirects, so that the list itself is reached.
    assert [reply.status_code for reply in replies] == [200, 200, 200]


def test_a_port_in_use_is_one_clear_line(crowd):
    """`mitl serve` twice."""
    with pytest.raises(EndpointError, match=r"is in use.*--port") as caught:
        serve(create_app(crowd.engine), port=port_of(crowd))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port):
    """Ports are 0 to 65535."""
    with pytest.raises(EndpointError, match="65535"):
        bind("127.0.0.1", port)
