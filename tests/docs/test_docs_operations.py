"""docs/operations.md: its commands run as written, and what it says of logs, metrics and messages is so."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from cli_kit import ok
from crowd_kit import post_hit
from docs_kit import mitl_lines
from guarded_kit import guarded_crowd

from mitl import logs

pytest_plugins = ("crowd_fixtures",)

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading."""
    found = re.search(rf"^##+ {title}\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def first_column(text: str) -> list[str]:
    """The names in backticks in the first column of the section's tables."""
    return [
        name
        for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    ]


def test_every_command_runs_as_written(tmp_path, monkeypatch):
    """In order, in a new project."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "5")
    ok("crowd", "keys")
    walk = mitl_lines("docs/operations.md")

    for words in walk:
        ok(*words)

    assert {" ".join(words[:2]) for words in walk} >= {
        f"db {one}" for one in ("backup", "verify", "restore", "current", "upgrade")
    }
    assert json.loads((tmp_path / "backup-1" / "manifest.json").read_text())["databases"].keys() == {
        "pipeline",
        "crowd",
    }


def test_the_metrics_are_those_of_the_page(crowd_engine):
    """All of them, and no other."""
    with guarded_crowd(crowd_engine) as crowd:
        post_hit(crowd.boto())
        page = crowd.browser().get(crowd.url + "/metrics").text

    exposed = re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
    assert sorted(exposed) == sorted(first_column(section("Health and metrics")))


def test_the_keys_of_the_log_are_those_of_its_lines(capsys):
    """With counts and an error, all of them."""
    logs.set_up("test", verbose=1, form="json")
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("mitl.test").exception("failed", extra={"counts": {"a": 1}})
    finally:
        logs.set_up("test")

    assert list(json.loads(capsys.readouterr().err)) == first_column(section("Logs"))


@pytest.mark.parametrize("message", first_column(section("Error messages")))
def test_every_message_is_one_that_mitl_or_its_driver_says(message):
    """In these words; the drivers' own are known to the module that explains them."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "mitl").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)
    plain = joined.replace("`", "").replace("{engines.BUSY_TIMEOUT_S:.0f}", "60")
    for part in message.split(" … "):
        found = part in plain or part.replace("a crowd database", "a {other} database") in plain
        assert found or part.lower() in plain, part
