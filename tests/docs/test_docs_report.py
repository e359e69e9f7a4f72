"""docs/report.md: its commands run as written, its files are where it says, its pictures are small."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from docs_kit import mitl_lines
from process_kit import project_settings
from world_kit import make_released

from mitl.cli import group
from mitl.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_commands_run_as_written_and_each_environment_has_its_file(tmp_path, monkeypatch, capsys):
    """In a worked-on project they exit 0 and write report.html; a look at live work goes into a file beside it."""
    make_released(tmp_path / "p", n_images=12, image_queries=4, caption_queries=4)
    monkeypatch.chdir(project_settings(tmp_path / "p").project)

    written = []
    for words in [*mitl_lines("docs/report.md"), ["report", "--live"]]:
        assert run(group, [*words, "--json"]) == 0, words
        written.append(json.loads(capsys.readouterr().out)["paths"].get("report"))

    assert [Path(path).name for path in written if path] == ["report.html", "report-live.html"]


def test_its_pictures_are_there_and_small():
    """At most 220 kB together, the picture of the start page among them."""
    pictures = [ROOT / "docs" / name for name in re.findall(r"!\[[^]]*\]\((images/[^)]*)\)", TEXT)]

    assert len(pictures) == 3
    assert sum(picture.stat().st_size for picture in pictures) < 220_000


def test_its_numbers_are_the_codes():
    """What is shown, listed and inlined at most."""
    from mitl.analysis.report import render
    from mitl.analysis.report.views import LADDER
    from mitl.stages.reporting import gallery

    assert f"the {render.MOST_WORKERS} busiest" in TEXT
    assert f"{LADDER[0][0]} pixels" in TEXT
    assert render.MAX_BYTES == 4_000_000
    assert "4 MB" in TEXT
    assert gallery.SHOWN == 6
    assert "six are shown" in TEXT
