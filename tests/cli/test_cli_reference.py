"""docs/cli.md is what the commands say, and what it says of settings and outputs is complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_kit import fails

from mitl import settings
from mitl.cli import reference
from mitl.cli.reference import COUNTS, PATHS
from mitl.errors import SettingsError
from mitl.settings import TABLES, VARIABLES

ROOT = Path(__file__).resolve().parents[2]


def test_the_committed_reference_is_the_generated_one():
    """Run `python -m mitl.cli.reference > docs/cli.md` after a change of the commands."""
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference.reference()


def test_every_command_has_a_section_with_the_keys_that_it_prints():
    """Nothing is documented that does not exist, and no command lacks its keys."""
    names = {name for name, _ in reference.commands()}

    assert set(COUNTS) == names
    assert set(PATHS) <= names


def test_the_demo_prints_what_the_report_prints():
    """It passes the report's numbers on; with --crisscross it prints its own."""
    assert COUNTS["demo"].keys() - COUNTS["report"].keys() == {"tasks", "correlations"}
    assert COUNTS["report"].keys() < COUNTS["demo"].keys()


def test_every_setting_that_is_read_is_documented(tmp_path):
    """The reference names each table and key that mitl.toml may hold, and no other key is taken."""
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for table, keys in TABLES.items():
        assert all(f"| `[{table}]` `{key}` | " in text for key in keys)
        (tmp_path / "mitl.toml").write_text(f"[{table}]\nsurprise = 1\n")
        if table != "dataset":
            with pytest.raises(SettingsError, match=f"known in .{table}.: {', '.join(sorted(keys))}"):
                settings.load(tmp_path, environ={})


def test_every_setting_of_a_project_is_held(tmp_path):
    """What mitl.toml says of each is what a command runs with."""
    values = {
        "id": "p", "seed": 4, "annotators": ["a"], "image_queries": 1, "caption_queries": 2, "top_k": 3, "depth": 9,
        "backend": "numpy", "engine": "ray", "ray_address": "auto", "endpoint": "http://e", "environment": "sandbox",
        "server_id": "s", "contact": "c", "image_base_url": "https://i", "wage_floor_cents": 5, "ceiling_cents": 6,
        "max_hits_per_worker": 7, "allowed_hosts": ["h"], "gold_positive_passes": ["yes"],
        "gold_negative_passes": ["no"], "min_seconds_a_pair": 1.5,
    }  # fmt: skip
    lines = []
    for table in ("project", "propose", "crowd", "review"):
        lines += [
            f"[{table}]",
            *(f"{key} = {json.dumps(values[key])}" for key in TABLES[table] if key != "name"),
        ]
    (tmp_path / "mitl.toml").write_text("\n".join(lines))

    held = settings.load(tmp_path, environ={})

    for table in ("project", "propose", "crowd", "review"):
        for key, setting in TABLES[table].items():
            if key != "name":
                value = getattr(held, setting.held_as or key)
                assert (list(value) if isinstance(value, tuple) else value) == values[key]


def test_every_variable_that_is_read_is_documented():
    """The one module that reads the environment names them all."""
    source = Path(settings.__file__).read_text(encoding="utf-8")

    either = re.findall(r'_secret\(env, "([A-Z_]+)"', source)
    plain = re.findall(r'env(?:iron)?\.get\("([A-Z_]+)"', source)
    assert {*plain, *either, *(f"{name}_FILE" for name in either)} == set(VARIABLES)


@pytest.mark.parametrize("name", reference.NEED_ENVIRONMENT)
def test_commands_that_need_an_environment_say_so(name, tmp_path):
    """Money is never spent, owed or asked for by default."""
    message = fails(2, *name.split(), "--project", tmp_path)

    assert "--sandbox" in message and "--live" in message
    assert list(tmp_path.iterdir()) == []
