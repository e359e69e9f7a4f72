"""The containers: compose file, Dockerfile, proxy, commands, and the images where an engine and their bases are."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.request
import uuid
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from process_kit import free_port

from mitl.cli import group
from mitl.crowd_server.health import check

yaml = pytest.importorskip("yaml", reason="pip package pyyaml is missing")

ROOT = Path(__file__).resolve().parents[2]
DOMAIN = "crowd.example.org"
CADDY = shutil.which("caddy")
SECRETS = ("db_password", "pipeline_url", "crowd_url", "requester_keys")


@pytest.fixture(scope="module")
def compose_file() -> dict[str, Any]:
    """The compose file, its variables filled in."""
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    text = re.sub(r"\$\{MITL_DOMAIN[^}]*\}", DOMAIN, text)
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.fixture(scope="module")
def services(compose_file) -> dict[str, Any]:
    """Its services."""
    found: dict[str, Any] = compose_file["services"]
    return found


@pytest.fixture(scope="module")
def networks(compose_file) -> dict[str, Any]:
    """Its networks."""
    found: dict[str, Any] = compose_file["networks"]
    return found


def test_docker_compose_accepts_the_file(tmp_path):
    """Its own parser finds nothing wrong, and refuses a start without the public name."""
    compose = shutil.which("docker-compose")
    if compose is None:
        pytest.skip("Debian package docker-compose is missing")
    for name in SECRETS:
        (tmp_path / name).write_text("x")
    environment = {"PATH": os.environ["PATH"], "MITL_SECRETS_DIR": str(tmp_path)}
    words = [compose, "-f", str(ROOT / "docker-compose.yml"), "config", "-q"]

    good = subprocess.run(
        words, env={**environment, "MITL_DOMAIN": DOMAIN}, capture_output=True, text=True, cwd=tmp_path
    )
    without = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=tmp_path)

    assert (good.returncode, good.stderr) == (0, "")
    assert without.returncode != 0
    assert "set MITL_DOMAIN to the name that people open" in without.stderr


@pytest.mark.parametrize("name", ["db", "crowd", "proxy", "harvest", "mitl"])
def test_no_service_runs_as_root_or_holds_a_secret_in_its_environment(services, name):
    """Each has a user of its own, no capability, a pinned image, and reads secrets from files alone."""
    service = services[name]

    assert int(service["user"].partition(":")[0]) > 0
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert re.fullmatch(r"[\w./-]+:\d+\.\d+(\.\d+)?(-\w+)?", service["image"])
    assert "healthcheck" in service
    for key, value in service.get("environment", {}).items():
        if "PASSWORD" in key or "URL" in key or "CREDENTIALS" in key or key in ("MITL_DB", "MITL_CROWD_DB"):
            assert str(value).startswith(("/run/secrets/", f"https://{DOMAIN}")), key
    assert "privileged" not in service
    assert all("docker.sock" not in str(volume) for volume in service.get("volumes", ()))


def test_only_the_proxy_can_be_reached_from_outside(services):
    """No other service publishes a port, and the database is on the inner network alone."""
    assert [name for name, service in services.items() if "ports" in service] == ["proxy"]
    assert services["db"]["networks"] == ["inside"]


def test_the_server_believes_the_proxys_address_and_its_own(services):
    """Who may name the sender is the proxy of this file, and the container's own health check."""
    address = services["proxy"]["networks"]["edge"]["ipv4_address"]
    trusted = [word for word in services["crowd"]["command"] if word.startswith("--trusted-proxy=")]

    assert trusted == [f"--trusted-proxy={address}", "--trusted-proxy=127.0.0.1"]


def test_nobody_else_is_given_the_proxys_address(services, networks):
    """The crowd server starts before it, and takes the first free address of the range that addresses come from."""
    (pool,) = networks["edge"]["ipam"]["config"]
    address = ip_address(services["proxy"]["networks"]["edge"]["ipv4_address"])

    assert address in ip_network(pool["subnet"])
    assert address not in ip_network(pool["ip_range"])


def test_the_public_name_leads_to_a_port_of_the_proxy_inside_too(services):
    """Programs on the network reach the alias at 443 itself: there is no mapping of ports between containers."""
    proxy = services["proxy"]
    caddyfile = (ROOT / "deploy" / "Caddyfile").read_text(encoding="utf-8")

    assert proxy["networks"]["edge"]["aliases"] == [DOMAIN]
    assert services["harvest"]["environment"]["MITL_ENDPOINT_URL"] == f"https://{DOMAIN}"
    assert services["harvest"]["environment"]["MITL_IMAGE_BASE_URL"] == f"https://{DOMAIN}"
    assert proxy["ports"] == ["80:80", "443:443"]
    assert "https_port {$MITL_HTTPS_PORT:443}" in caddyfile and "http_port {$MITL_HTTP_PORT:80}" in caddyfile
    assert proxy["sysctls"] == {"net.ipv4.ip_unprivileged_port_start": "0"}


def test_the_database_is_well_only_when_others_can_reach_it(services):
    """While a new volume is filled, PostgreSQL listens on its socket alone; a check there would pass too early."""
    assert "--host=127.0.0.1" in services["db"]["healthcheck"]["test"]


def commands(services: dict[str, Any]) -> Iterator[list[str]]:
    """Every call of `mitl` in commands and health checks."""
    for service in services.values():
        for words in (service.get("command", []), service.get("healthcheck", {}).get("test", [])):
            line = [word for word in words if word != "CMD"]
            if line[:1] == ["mitl"]:
                yield line[1:]
            for part in re.findall(r"mitl ([^&;]+)", " ".join(line)) if line[:1] == ["sh"] else ():
                yield part.split()


def test_every_command_of_the_compose_file_is_one_of_ours(services):
    """Commands and options are taken by the command line as it is."""
    found = list(commands(services))

    assert ["harvest", "--verbose"] in found
    assert any(words[0] == "serve" for words in found)
    for name, *words in found:
        context, command = None, group.get_command(None, name)  # type: ignore[arg-type]
        while (subcommand := getattr(command, "commands", {}).get(words[0] if words else "")) is not None:
            command, words = subcommand, words[1:]
        existing = [word.replace("/pictures", str(ROOT)) for word in words]
        context = command.make_context(name, existing, resilient_parsing=False)
        context.close()


def taken(path: str) -> bool:
    """Whether the docker build sees this file of the checkout, by .dockerignore's patterns."""
    seen = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        parts = Path(path).parts
        prefixes = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        anywhere = pattern.startswith("**/") and pattern[3:] in parts
        if anywhere or any(fnmatch.fnmatch(prefix, pattern) for prefix in prefixes):
            seen = line.startswith("!")
    return seen


@pytest.mark.slow
def test_a_wheel_can_be_built_from_what_the_docker_build_sees(tmp_path):
    """Nothing that packaging needs is kept from the context, and no database or key is let into it."""
    pytest.importorskip("hatchling", reason="pip package hatchling is missing")
    tops = [top for top in ROOT.iterdir() if not top.name.startswith(".") and top.name != "build"]
    for path in (path for top in tops for path in (top, *top.rglob("*"))):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and taken(name):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / name)

    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "out").glob("mitl-*.whl"))
    assert not taken("mitl.db") and not taken("credentials.toml") and not taken("secrets/db_password")
    assert not taken("tests/conftest.py") and not taken("mitl/__pycache__/x.pyc")


def test_the_dockerfile_copies_what_is_there_and_names_extras_that_exist(services):
    """A renamed file or extra would break the build on somebody else's machine."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    (named,) = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)

    assert set(named.split(",")) <= set(extras)
    assert services["crowd"]["build"]["args"] == {"EXTRAS": named}
    for source in re.findall(r"^COPY (\S+) \S+$", text, re.MULTILINE):
        assert source == "." or (ROOT / source).exists()
    assert all(
        re.search(r":\d+\.\d+\.\d+", image) for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    )
    assert len(re.findall(r"^USER 10001", text, re.MULTILINE)) == 2


@pytest.fixture
def server(tmp_path, start_program) -> Iterator[int]:
    """The crowd server under the compose file's options; its port."""
    port = free_port()
    words = [
        *("serve", "--quiet", "--host=0.0.0.0", f"--port={port}", "--public-url=https://localhost"),
        *("--plain-http-behind-proxy", "--trusted-proxy=172.30.7.130", "--trusted-proxy=127.0.0.1"),
    ]
    process = start_program(
        [sys.executable, "-m", "mitl", *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    wait_until_well(f"http://127.0.0.1:{port}")
    yield port
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert b"token" not in said


def wait_until_well(url: str) -> None:
    """Ask until the server answers."""
    for _ in range(300):
        fault = check(url)
        if fault is None:
            return
        time.sleep(0.1)
    raise AssertionError(fault)


@pytest.mark.slow
def test_the_health_check_tells_a_server_from_silence(server):
    """It ends with 0 beside a server, with 1 and a line beside none, with 2 where it is called wrongly."""
    command = [sys.executable, "-m", "mitl.crowd_server.health"]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *words], capture_output=True, text=True, cwd=ROOT)

    well, silent = run(f"http://127.0.0.1:{server}"), run(f"http://127.0.0.1:{free_port()}")

    assert (well.returncode, well.stderr) == (0, "")
    assert silent.returncode == 1 and len(silent.stderr.splitlines()) == 1
    assert run().returncode == 2
    assert "http://" in run("crowd:8765").stderr


@pytest.mark.slow
@pytest.mark.skipif(CADDY is None, reason="Debian package caddy is missing")
def test_caddy_ends_tls_before_the_server(server, tmp_path, start_program):
    """Under the Caddyfile as it is, https reaches the server with Host and scheme right, and http leads to https."""
    text = (ROOT / "deploy" / "Caddyfile").read_text(encoding="utf-8")
    https, health = free_port(), free_port()
    assert "8081" in text
    text = text.replace("8081", str(health))
    (tmp_path / "Caddyfile").write_text(text.replace("admin off", "admin off\n\tskip_install_trust"))
    environment = {
        **os.environ,
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "MITL_DOMAIN": "localhost",
        "MITL_CROWD": f"127.0.0.1:{server}",
        "MITL_HTTP_PORT": str(free_port()),
        "MITL_HTTPS_PORT": str(https),
    }
    words = [CADDY, "run", "--config", str(tmp_path / "Caddyfile"), "--adapter", "caddyfile"]
    authority = tmp_path / "data" / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    start_program(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for _ in range(300):
        if authority.exists():
            break
        time.sleep(0.1)
    context = ssl.create_default_context(cafile=str(authority))
    reply = _open(f"https://localhost:{https}/healthz", context)
    assert b"mitl-crowd" in reply.read()
    assert "max-age" in reply.headers["strict-transport-security"]
    assert _open(f"http://127.0.0.1:{health}/", context).status == 200


def _open(url: str, context: ssl.SSLContext) -> Any:
    for _ in range(100):
        try:
            handler = urllib.request.HTTPSHandler(context=context)
            return urllib.request.build_opener(urllib.request.ProxyHandler({}), handler).open(url, timeout=5)
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer")


class Engine:
    """Docker or Podman, by the commands that both have."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._name = f"mitl-test-{uuid.uuid4().hex[:12]}"

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One command of the engine, to its end."""
        return subprocess.run([self._command, *words], capture_output=True, text=True, cwd=ROOT)

    def build(self, target: str) -> str:
        """The image of this target, built without a network; its name. Skips where a base is missing."""
        for base in re.findall(
            r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
        ):
            if self.call("image", "inspect", base).returncode:
                pytest.skip(f"image {base} is missing")
        image = f"{self._name}-{target}"
        done = self.call("build", "--network=none", f"--target={target}", f"--tag={image}", ".")
        assert done.returncode == 0, done.stdout + done.stderr
        return image

    def start(
        self, image: str, service: dict[str, Any], *options: str, command: tuple[str, ...] = ()
    ) -> None:
        """Start a container under the service's restrictions and without a network."""
        assert service["read_only"] is True
        words = ["run", "--detach", f"--name={self._name}", "--network=none", "--read-only"]
        words += [f"--user={service['user']}", f"--volume={self._name}:/data", *options]
        words += [f"--tmpfs={mount}" for mount in service["tmpfs"]]
        words += [f"--cap-drop={name}" for name in service["cap_drop"]]
        words += [f"--security-opt={option}" for option in service["security_opt"]]
        words += [f"--sysctl={name}={value}" for name, value in service.get("sysctls", {}).items()]
        done = self.call(*words, image, *command)
        assert done.returncode == 0, done.stderr

    def inside(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command in the container."""
        return self.call("exec", self._name, *words)

    def remove_all(self) -> None:
        """Remove whatever a test made: container, volume, images."""
        self.call("rm", "--force", self._name)
        self.call("volume", "rm", "--force", self._name)
        for target in ("mitl", "proxy"):
            self.call("rmi", "--force", f"{self._name}-{target}")


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A container engine that answers."""
    installed = [command for name in ("docker", "podman") if (command := shutil.which(name))]
    answer = [c for c in installed if subprocess.run([c, "info"], capture_output=True).returncode == 0]
    if not answer:
        pytest.skip("no container engine answers")
    found = Engine(answer[0])
    try:
        yield found
    finally:
        found.remove_all()


@pytest.mark.slow
def test_the_proxys_image_keeps_certificates_without_root(engine, services):
    """On a new volume, as its own user and without capabilities, Caddy is well and has stored a certificate."""
    engine.start(engine.build("proxy"), services["proxy"], "--env=MITL_DOMAIN=localhost")
    _, *health = services["proxy"]["healthcheck"]["test"]
    certificate = "/data/caddy/certificates/local/localhost/localhost.crt"

    for _ in range(150):
        states = [engine.inside(*words).returncode for words in (health, ["test", "-s", certificate])]
        if states == [0, 0]:
            break
        time.sleep(0.2)

    assert states == [0, 0]


@pytest.mark.slow
def test_mitls_image_runs_commands_and_may_do_nothing_else(engine, services):
    """It answers as its user, without capabilities, over files that it cannot change; its health check works."""
    if not list((ROOT / "wheels").glob("*.whl")):
        pytest.skip("wheels/ holds no wheels to build it from")
    command = ("mitl", "serve", "--quiet", "--project=/tmp")
    engine.start(engine.build("mitl"), services["crowd"], command=command)
    _, *health = services["crowd"]["healthcheck"]["test"]
    for _ in range(150):
        well = engine.inside(*health)
        if well.returncode == 0:
            break
        time.sleep(0.2)

    status = engine.inside("cat", "/proc/1/status").stdout

    assert well.returncode == 0, well.stderr
    assert re.findall(r"^(?:Uid|CapEff|CapBnd|NoNewPrivs):\s+(\w+)", status, re.MULTILINE) == [
        "10001",
        "0" * 16,
        "0" * 16,
        "1",
    ]
    assert engine.inside("mitl", "--version").stdout.startswith("mitl, version ")
    assert engine.inside("python", "-c", "import psycopg").returncode == 0
    assert engine.inside("sh", "-c", "touch /project/x || touch /opt/mitl/x || touch /x").returncode != 0
