"""docs/explore.md: its commands run as written, and every field of the form is told."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from docs_kit import mitl_lines
from world_kit import make_released

from mitl.cli.reference import COUNTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A project with a release."""
    return make_released(
        tmp_path_factory.mktemp("explored") / "p", n_images=8, image_queries=3, caption_queries=4
    )


@pytest.mark.parametrize("words", mitl_lines("docs/explore.md"), ids=" ".join)
def test_the_commands_run_as_written_and_stop_at_a_signal(released, monkeypatch, start_program, words):
    """The printed address shows the pairs and the fields that the page tells of; Ctrl-C ends it with 130 and a line."""
    monkeypatch.chdir(released.project)
    command = [sys.executable, "-m", "mitl", *words, "--port", "0", "--json"]
    process = start_program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    told = json.loads(process.stdout.readline())
    page = httpx.get(told["counts"]["url"] + "/", trust_env=False)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert told["command"] == "explore" and set(told["counts"]) == set(COUNTS["explore"])
    assert f"of {told['counts']['pairs']:,} pairs" in page.text
    text = (ROOT / "docs" / "explore.md").read_text(encoding="utf-8").lower()
    labels = re.findall(r"<label for=[^>]*>([^<]*)</label>", page.text)
    assert len(labels) >= 6 and all(label.lower() in text for label in labels)
    assert (process.returncode, out, err) == (130, "", "stopped; start it again with `mitl explore`\n")
