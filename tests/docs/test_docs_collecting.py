"""docs/collecting.md: its walk on a generated world runs, and its other commands are ones that there are."""

from __future__ import annotations

import pytest
from cli_kit import mitl, ok
from docs_kit import mitl_lines

PAGE = "docs/collecting.md"


def test_the_walk_on_a_generated_world_runs_as_documented(tmp_path, monkeypatch):
    """From `mitl init` on, on a small world; what comes before it runs on the same project."""
    monkeypatch.chdir(tmp_path)
    lines = mitl_lines(PAGE)
    start = next(place for place, words in enumerate(lines) if words[0] == "init")
    (tmp_path / "images.txt").write_text("\n".join(map(str, range(1, 11))))
    for words in lines[start:]:
        ok(*[word.replace("60", "12") if words[0] == "init" else word for word in words])
    for words in lines[:start]:
        if words[:2] == ["collect", "publish"] or words[0] == "harvest":
            ok(*words)
    assert ok("collect", "show", "--json").json["counts"]["chosen"] == 10


@pytest.mark.parametrize(
    "words", [words for words in mitl_lines(PAGE) if words[0] == "collect"], ids=" ".join
)
def test_every_option_on_the_page_is_one(words):
    """The help of each command that it names has the options that it is given."""
    told = mitl(*words[:2], "--help").out
    assert all(word in told for word in words if word.startswith("--"))
