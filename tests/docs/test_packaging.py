"""An installed wheel holds all that the commands need: templates, migrations, pages, lists, weights."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PLACES = {"mitl": "mitl", "annotators": "annotators"} | {
    name: f"mitl/_bundled/{name}" for name in ("hit_templates", "migrations")
}
"""Folder of the source checkout -> folder of the wheel."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from this checkout by its own build back end."""
    pytest.importorskip("hatchling", reason="pip package hatchling is missing")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment into which pip has installed the wheel; Python compiles what the tests ask of it."""
    target = tmp_path_factory.mktemp("environment")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(target)
    install = ["install", "-q", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    pip = [sys.executable, "-m", "pip", "--python", str(target / "bin" / "python"), *install]
    subprocess.run(pip, check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def installed(environment: Path) -> dict[str, str]:
    """The environment of a process that finds mitl in the installed wheel and nowhere else.

    With ``-S`` the interpreter reads no .pth file, so that this checkout's editable install is out of sight; the
    libraries are named as a plain path, after the wheel.
    """
    (folder,) = environment.glob("lib/python*/site-packages")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MITL_", "AWS_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(folder), sysconfig.get_path("purelib")])}


def python(environment: dict[str, str], folder: Path, *words: str) -> str:
    """What Python prints in this folder under this environment."""
    command = [sys.executable, "-S", "-W", "error", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    # A release of which some answers cannot be used warns of that; nothing else is said.
    said = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert (done.returncode, said) == (0, [])
    return done.stdout


def test_every_file_that_is_no_code_is_in_the_wheel_too(wheel):
    """Whatever lies beside the code is there under the place where the code looks for it, and no cache is."""
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    wanted = {
        f"{place}/{path.relative_to(ROOT / name).as_posix()}"
        for name, place in PLACES.items()
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert wanted - packed == set()
    assert [name for name in packed if "__pycache__" in name or name.startswith("tests/")] == []
    for suffix in (".j2", ".css", ".js", ".csv", ".toml", ".mako", ".safetensors", "py.typed"):
        assert any(name.endswith(suffix) for name in packed), suffix


def test_the_wheel_names_its_command_and_its_licence(wheel):
    """`mitl` is on the path after an installation."""
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        text = archive.read(entries).decode()
        licences = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]

    assert "mitl = mitl.__main__:main" in text
    assert len(licences) == 1


def test_the_loop_runs_from_the_wheel_in_an_empty_folder(installed, tmp_path):
    """From a generated world to a report, with one trained annotator; every step finds its files.

    Modules, templates, migrations and exclusion lists are found too, none of them in the checkout.
    """
    steps = [
        "--version",
        "--help",
        "init --dataset scenes --n-images 12",
        "propose --annotator pcme-mini --image-queries 2 --caption-queries 2 --depth 5",
        "publish --sandbox",
        "simulate",
        "harvest",
        "review settle",
        "build-dataset --out release",
        "report",
        "crowd invite --sandbox",
    ]
    script = (
        "import sys\n"
        "import annotators, mitl\n"
        "from mitl import resources\n"
        "from mitl.cli import group\n"
        "from mitl.cli.app import run\n"
        "from mitl.datasets.exclusions import paper_exclusions\n"
        "from mitl.db import migrate\n"
        "from mitl.hits.templates import load_template\n"
        "print(annotators.__file__, mitl.__file__, resources.folder('hit_templates'), resources.folder('migrations'))\n"
        "print(load_template('pairs-plain').rationale, load_template('pairs-rationale').rationale)\n"
        "print(migrate.head('pipeline') != '', migrate.head('crowd') != '', len(paper_exclusions()) > 0)\n"
        "for step in sys.argv[1:]:\n"
        "    print('ended with', run(group, step.split()))\n"
    )

    printed = python(installed, tmp_path, "-c", script, *steps)
    places, templates, found, printed = printed.split("\n", 3)
    *said, rest = printed.split("ended with 0\n")

    folder = installed["PYTHONPATH"].split(os.pathsep)[0]
    assert all(place.startswith(folder) for place in places.split())
    assert (templates, found) == ("False True", "True True True")
    assert (len(said), rest) == (len(steps), "")
    assert all(said)
    assert (tmp_path / "release" / "manifest.json").is_file()
    assert "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_source_archive_builds_the_same_wheel(wheel, tmp_path):
    """Whoever packages from the sdist gets what we ship, and finds tests, documents and benchmarks in it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path / "sdist")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = (tmp_path / "sdist").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (again,) = (tmp_path / "again").glob("*.whl")

    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {(entry.filename, entry.CRC) for entry in one.infolist()} == {
            (entry.filename, entry.CRC) for entry in other.infolist()
        }
    present = {path.relative_to(source).parts[0] for path in source.rglob("*")}
    assert {"tests", "docs", "benchmarks", "README.md", "CHANGELOG.md", "LICENSE", "Makefile"} <= present
    assert {"Dockerfile", "docker-compose.yml", "deploy", "mkdocs.yml", "constraints.txt"} <= present


def test_pip_installs_the_wheel_into_an_empty_environment(environment, tmp_path):
    """The command `mitl` is there and works, and a type checker finds the types."""
    # What it depends on is lent from here; the editable install of this checkout is not, .pth files are not read.
    lent = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}

    said = subprocess.run(
        [str(environment / "bin" / "mitl"), "--version"],
        env=lent,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    (package,) = environment.glob("lib/python*/site-packages/mitl")

    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("mitl, version ")
    assert (package / "py.typed").exists()
