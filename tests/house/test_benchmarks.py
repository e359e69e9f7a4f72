"""Benchmarks run by hand, so what they call is looked at here: it exists, and takes what they give."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mitl.stages.setup.init import examples_of_settings

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OURS = ("annotators", "mitl")


def imported(tree: ast.Module) -> dict[str, Any]:
    """Name → what a benchmark imports of ours under it."""
    return {
        alias.asname or alias.name: resolved(node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS
        for alias in node.names
    }


def resolved(module: str, name: str) -> Any:
    """A module's member, or a module of a package."""
    home = import_module(module)
    return getattr(home, name) if hasattr(home, name) else import_module(f"{module}.{name}")


def calls(tree: ast.Module, names: dict[str, Any]) -> Iterator[tuple[ast.Call, Any]]:
    """Calls of what was imported, and of members of imported modules and classes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        of = node.func
        if isinstance(of, ast.Name) and of.id in names:
            yield node, names[of.id]
        elif isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name) and of.value.id in names:
            home = names[of.value.id]
            if inspect.ismodule(home) or inspect.isclass(home):
                yield node, getattr(home, of.attr)


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_calls_what_there_is(path):
    """Names, and the number and names of arguments where all are written out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))

    for call, function in calls(tree, imported(tree)):
        given = [None for argument in call.args if not isinstance(argument, ast.Starred)]
        named = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
        is_whole = len(given) == len(call.args) and len(named) == len(call.keywords)
        signature = inspect.signature(function)
        bind = signature.bind if is_whole else signature.bind_partial
        try:
            bind(*given, **named)
        except TypeError as error:
            pytest.fail(f"{path.name}:{call.lineno}: {ast.unparse(call.func)}: {error}")


def test_a_walk_names_its_annotators_once_beside_what_init_suggests(tmp_path, monkeypatch):
    """What `mitl init` writes as a comment names none; a second run of the walk changes nothing."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    walk, config = import_module("coco_walk"), tmp_path / "mitl.toml"
    config.write_text(examples_of_settings(50, ("image", "caption")), encoding="utf-8")

    for _ in range(2):
        walk._add_annotators(config, ["pivot-a"], tmp_path / "captions.jsonl")

    read = tomllib.loads(config.read_text(encoding="utf-8"))
    assert read["propose"]["annotators"] == ["pivot-a"] and read["annotators"].keys() == {"pivot-a"}
