"""docs/review.md: its commands run as written, its commands, settings and numbers are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from cli_kit import mitl, ok
from docs_kit import blocks, mitl_lines
from world_kit import copy_of

from mitl.judgements.gold_records import GOOD_MEAN, MIN_GOLDS, GoldRecord
from mitl.records import Label
from mitl.settings import AUTO_APPROVAL_S, TABLES
from mitl.stages.harvesting.judging import REVERSIBLE_FOR

pytest_plugins = ("desk_fixtures",)

PAGE = "docs/review.md"
TEXT = (Path(__file__).resolve().parents[2] / PAGE).read_text(encoding="utf-8")


def test_the_commands_run_as_written(reviewed, tmp_path, monkeypatch):
    """In order, in a project with a queue; afterwards nothing waits."""
    settings = copy_of(reviewed, tmp_path / "p")
    monkeypatch.chdir(settings.project)
    first = str(ok("review", "--json").json["counts"]["submissions"][0])

    for words in mitl_lines(PAGE):
        ok(*[first if word == "1" else word for word in words])

    assert ok("review", "--json").json["counts"]["queued"] == 0
    assert (settings.project / "workers.csv").exists()


def test_every_command_that_is_named_exists():
    """`mitl review exclude` and the others."""
    for name in sorted(set(re.findall(r"`(mitl review [a-z]+)", TEXT))):
        assert mitl(*name.split()[1:], "--help").status == 0, name


def test_the_settings_that_are_shown_are_read():
    """Each table and key of its TOML blocks, with answers that there are."""
    for block in blocks(PAGE, "toml"):
        for table, keys in tomllib.loads(block).items():
            assert keys.keys() <= TABLES[table].keys()
            if table == "review":
                rules = [answers for name, answers in keys.items() if name.endswith("_passes")]
                assert rules and all(set(answers) <= set(Label) for answers in rules)


def test_the_numbers_are_the_codes():
    """Thresholds of the record, the delay of approval and the time to reverse a rejection."""
    assert (float(GOOD_MEAN), MIN_GOLDS) == (0.9, 4) and "*Good* is a mean of 0.9 or more" in TEXT
    assert "3 of 4 to 8, 4 of 10, 5 of 16, 8 of 40; each from four controls on" in TEXT
    for failures, golds in ((3, 4), (3, 8), (4, 10), (5, 16), (8, 40)):
        assert GoldRecord(golds - failures, golds).is_bad
        assert not GoldRecord(golds - failures + 1, golds).is_bad
    assert AUTO_APPROVAL_S == 7 * 24 * 3600 and "(seven days after submission)" in TEXT
    assert REVERSIBLE_FOR.days == 30 and "within 30 days of submission" in TEXT
