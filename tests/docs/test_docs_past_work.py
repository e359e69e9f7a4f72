"""docs/past-work.md: its files and commands work as shown, and its words are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_kit import fails, ok
from docs_kit import ROOT, mitl_lines

from mitl.crowd import column_map
from mitl.crowd.batch_csv import LAYOUTS
from mitl.datasets.official import OFFICIAL_COLUMNS

DOCUMENT = "docs/past-work.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with the files that the page shows, entered."""
    monkeypatch.chdir(tmp_path)
    for name, body in re.findall(r"```\w+ (\S+\.\w+)\n(.*?)```", TEXT, re.DOTALL):
        Path(name).write_text(body, encoding="utf-8")
    return tmp_path


def test_the_walk_gives_what_the_page_shows(folder):
    """The mapping is asked for, the file is read as printed, and its release can be brought in by itself."""
    init, harvest, official = mitl_lines(DOCUMENT)
    shown = re.search(r"```\n(brought in .*?)```", TEXT, re.DOTALL)
    assert shown is not None

    ok(*init)
    assert "say in a file, with --columns MAP.toml" in fails(1, *harvest[:3])
    assert ok(*harvest).out == shown[1]
    assert "nothing to do" in ok(*harvest).out
    ok("build-dataset", "--out", "release")
    assert "holds no row" in fails(1, *official), "nobody proposed the pairs, so the official CSV is empty"


def test_the_page_names_every_key_and_layout():
    """Of the mapping, and of what the layouts are known by."""
    keys = set(re.findall(r"`\[?([a-z_]+)\]?`", TEXT))

    assert set(column_map._KEYS) <= keys
    assert keys.issuperset(column_map._SOURCE_KEYS)
    for layout in LAYOUTS:
        assert all(f"`{column}`" in TEXT for column in layout.needed)
    assert ",".join(OFFICIAL_COLUMNS) in TEXT
