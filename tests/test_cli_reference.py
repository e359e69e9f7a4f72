"""docs/cli.md is what the commands say, and what it says of settings and outputs is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_kit import fails

from mitl import config_file, settings
from mitl.cli import reference
from mitl.cli.outputs import COUNTS, PATHS
from mitl.cli.reference_settings import TABLES, VARIABLES

ROOT = Path(__file__).resolve().parents[1]


def test_the_committed_reference_is_the_generated_one():
    """Run `python -m mitl.cli.reference > docs/cli.md` after a change of the commands."""
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference.reference()


def test_every_command_has_a_section_with_the_keys_that_it_prints():
    """Nothing is documented that does not exist, and no command lacks its keys."""
    names = {name for name, _ in reference.commands()}

    assert set(COUNTS) == names
    assert set(PATHS) <= names


def test_the_demo_prints_what_the_report_prints():
    """It passes the report's numbers on."""
    assert COUNTS["demo"].keys() == COUNTS["report"].keys()


def test_every_setting_that_is_read_is_documented():
    """The tables and keys are those that mitl.toml may hold."""
    known = {table: keys for table, keys in config_file._KNOWN.items() if keys is not None}

    assert {table: set(keys) for table, keys in TABLES.items() if table != "dataset"} == known


def test_every_variable_that_is_read_is_documented():
    """The one module that reads the environment names them all."""
    source = Path(settings.__file__).read_text(encoding="utf-8")

    either = re.findall(r'_secret\(env, "([A-Z_]+)"', source)
    plain = re.findall(r'env\.get\("([A-Z_]+)"', source)
    assert {*plain, *either, *(f"{name}_FILE" for name in either)} == set(VARIABLES)


@pytest.mark.parametrize("name", reference.NEED_ENVIRONMENT)
def test_commands_that_need_an_environment_say_so(name, tmp_path):
    """Money is never spent, owed or asked for by default."""
    message = fails(2, *name.split(), "--project", tmp_path)

    assert "--sandbox" in message and "--live" in message
    assert list(tmp_path.iterdir()) == []
