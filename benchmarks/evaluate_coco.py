"""Caption pivots on the real COCO test split under every metric, with 95 % intervals, as Markdown.

    python benchmarks/evaluate_coco.py --data DIR --out DIR [--text-models tfidf minilm] [--samples 1000]

DIR of --data holds, directly or in folders, ``captions.parquet`` (compact captions), ``machine_captions.parquet`` (a
column per captioner), CxC's ``sits_test.csv``, ``sts_test.csv`` and ``sis_test.csv``, and ``test5000_objects.json.gz``
(object names by image). Makes a project in --out (or goes on with the one that is there), runs ``mitl evaluate`` once
for each text model, keeps its JSON as ``scores-TEXTMODEL.json`` and writes the tables of docs/evaluation.md to
``tables.md``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shared_kit import find_file, parser_of

CAPTIONERS = ("PureT_SCST", "SATIC", "SparseCaption_test156000", "ShowEditTell_RL", "BERT_VR_rerank_0.4")
SETS = {
    "official-original": "COCO 5K, the original captions",
    "official-original-1k": "COCO 1K, the mean of five folds",
    "official-cxc": "CxC",
    "official-eccv": "ECCV Caption",
    "cxc": "CxC within one side",
    "graded-cxc": "Graded by CxC's scores",
    "plausible": "Plausible matches (PMRP)",
}
_ACROSS = ("i2t", "t2i")
_PLAIN = ("Kendall",)


def main() -> None:
    """Make the project, score, write the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="project folder to make")
    parser.add_argument("--text-models", nargs="+", default=["tfidf", "minilm"], choices=["tfidf", "minilm"])
    parser.add_argument("--samples", type=int, default=1000)
    arguments = parser.parse_args()
    project = arguments.out.absolute()
    project.mkdir(parents=True, exist_ok=True)
    if not (project / "mitl.toml").exists():
        _make(project, arguments.data)
    found = []
    for text_model in arguments.text_models:
        started = time.perf_counter()
        found.append(_evaluate(project, arguments.data, text_model, arguments.samples))
        print(f"# {text_model}: {time.perf_counter() - started:.0f} s", flush=True)
        (project / "tables.md").write_text(_tables(found), encoding="utf-8")
    print((project / "tables.md").read_text(encoding="utf-8"))


def _make(project: Path, data: Path) -> None:
    machine = find_file(data, "machine_captions.parquet")
    _mitl(project, "init", "--dataset", "coco", "--captions", str(find_file(data, "captions.parquet")))
    names = [f"pivot-{captioner}-{text}" for text in ("tfidf", "minilm") for captioner in CAPTIONERS]
    tables = "".join(f'\n[annotators."{name}"]\ncaptions = "{machine}"\n' for name in names)
    with (project / "mitl.toml").open("a", encoding="utf-8") as config:
        config.write(tables)


def _evaluate(project: Path, data: Path, text_model: str, samples: int) -> dict[str, Any]:
    """The counts of one call over the five captioners."""
    names = [f"pivot-{captioner}-{text_model}" for captioner in CAPTIONERS]
    words = ["evaluate", *(word for name in names for word in ("--annotator", name)), "--official", "all"]
    words += ["--cxc", str(find_file(data, "sits_test.csv").parent), "--graded", "--against", names[0]]
    words += ["--objects", str(find_file(data, "test5000_objects.json.gz")), "--samples", str(samples)]
    words += ["--csv", f"scores-{text_model}.csv", "--latex", f"scores-{text_model}.tex", "--json"]
    printed = _mitl(project, *words)
    (project / f"scores-{text_model}.json").write_text(printed, encoding="utf-8")
    counts: dict[str, Any] = json.loads(printed)["counts"]
    return counts


def _mitl(project: Path, *words: str) -> str:
    command = [sys.executable, "-m", "mitl", *words]
    return subprocess.run(command, check=True, cwd=project, stdout=subprocess.PIPE, text=True).stdout


def _tables(found: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for name, title in SETS.items():
        directions = _ACROSS if name != "cxc" else ("t2t", "i2i")
        parts += [_table(found, name, f"{title}, {direction}", direction) for direction in directions]
    return "\n".join([*filter(None, parts), _rsum(found), _correlations(found)])


def _table(found: Iterable[Mapping[str, Any]], name: str, title: str, direction: str) -> str:
    rows: list[tuple[str, Mapping[str, float], Mapping[str, Sequence[float]]]] = []
    queries = 0
    for counts in found:
        for model, by_direction in counts["scores"].get(name, {}).items():
            if direction in by_direction:
                ends = counts["intervals"].get(name, {}).get(model, {}).get(direction, {})
                rows.append((model, by_direction[direction], ends))
                queries = counts["queries"][name][direction]
    if not rows:
        return ""
    metrics = list(rows[0][1])
    body = [
        (model, *(_cell(metric, values[metric], ends.get(metric)) for metric in metrics))
        for model, values, ends in rows
    ]
    return f"**{title}** ({queries:,} queries)\n\n" + _markdown(["model", *metrics], body)


def _rsum(found: Iterable[Mapping[str, Any]]) -> str:
    sets = [name for name in SETS if name.startswith("official-")]
    body = []
    for counts in found:
        for model in counts["rsum"][sets[0]]:
            sums = [counts["rsum"][name][model] for name in sets]
            cells = [
                f"{100 * one['value']:.1f} ({100 * one['low']:.1f}–{100 * one['high']:.1f})" for one in sums
            ]
            body.append((model, *cells))
    return "**RSUM** (0 to 600)\n\n" + _markdown(
        ["model", *(SETS[name].partition(",")[0] for name in sets)], body
    )


def _correlations(found: Iterable[Mapping[str, Any]]) -> str:
    body = [
        (model, *(f"{100 * one['mean']:.1f} ± {100 * one['std']:.1f}" for one in by_kind.values()))
        for counts in found
        for model, by_kind in counts["correlations"].items()
    ]
    kinds = [
        kind.upper() for counts in found for by_kind in counts["correlations"].values() for kind in by_kind
    ]
    return (
        "**Spearman's correlation with CxC's scores x 100** (mean ± standard deviation of the samples)\n\n"
        + (_markdown(["model", *dict.fromkeys(kinds)], body))
    )


def _cell(metric: str, value: float, ends: Sequence[float] | None) -> str:
    scale, digits = (1, 3) if metric.startswith(_PLAIN) else (100, 1)
    shown = f"{scale * value:.{digits}f}"
    if ends is None:
        return shown
    return f"{shown} ({scale * ends[0]:.{digits}f}–{scale * ends[1]:.{digits}f})"


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
