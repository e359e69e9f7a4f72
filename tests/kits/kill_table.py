"""The tables of kill points and faults in ``docs/crash-safety.md``: written by a run, compared with by its tests.

``make kill-tests`` runs every point and every fault and then this module as a program, which puts the results into
the document.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from kill_points import AFTER, BEFORE
from kill_trials import WHOLE, Trial

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "crash-safety.md"
EVERYTHING = os.environ.get("MITL_KILL_TESTS") == "all"
"""Whether every fault meets every call, and not each call one of them."""
RESULTS = os.environ.get("MITL_KILL_RESULTS")
KILLS, LATER, INTERRUPTS = "kill points", "a day later", "interrupts"
FAULTS, KINDS = "faults", "kinds of faults"
_NUMBER = re.compile(r" \d+$")
_COLUMNS = {
    KILLS: ("Command", "Step", "Killed before", "Killed after", "Found after the second run"),
    LATER: ("Command", "Call", "Killed after", "Found after the second run"),
    INTERRUPTS: ("Command", "Points", "Found after the second run"),
    FAULTS: ("Command", "Call", "Times", "Faults", "Found in the end"),
    KINDS: (
        "Fault",
        "Trials",
        "The command went on",
        "It stopped, and the second run completed it",
        "Found in the end",
    ),
}
Row = tuple[str, ...]


def steps(names: Iterable[str]) -> dict[str, int]:
    """How often each step comes, by its name without the number, in the order of their coming."""
    return dict(Counter(_NUMBER.sub("", name) for name in names))


def first_and_last(names: Sequence[str]) -> list[str]:
    """Of each step the first and the last."""
    ends: dict[str, list[str]] = {}
    for name in names:
        ends.setdefault(_NUMBER.sub("", name), []).append(name)
    chosen = {name for found in ends.values() for name in (found[0], found[-1])}
    return [name for name in names if name in chosen]


def points_to_kill(points: Sequence[str]) -> list[str]:
    """Usually the first point, and of each step the first and the last whose effect stands; else every point.

    Between the end of a step and the begin of the next nothing leaves the process.
    """
    if EVERYTHING:
        return list(points)
    return [*points[:1], *first_and_last([point for point in points if point.startswith(AFTER)])]


def assert_whole(trials: Sequence[Trial], points: Sequence[str]) -> dict[str, int]:
    """All trials ended whole, and each step has a point before it and one after it; the steps."""
    assert [str(trial) for trial in trials if trial.result != WHOLE] == []
    before = steps(point.removeprefix("before ") for point in points if point.startswith(BEFORE))
    after = steps(point.removeprefix("after ") for point in points if point.startswith(AFTER))
    assert before == after != {}
    return before


def keep(kind: str, scenario: str, trials: Sequence[Trial], counted: Mapping[str, int]) -> None:
    """Leave results for the document where ``MITL_KILL_RESULTS`` says; counted: how often each step comes."""
    if RESULTS is not None:
        Path(RESULTS).mkdir(parents=True, exist_ok=True)
        text = json.dumps({"counted": counted, "trials": [asdict(trial) for trial in trials]}, indent=1)
        (Path(RESULTS) / f"{kind} - {scenario}.json").write_text(text, encoding="utf-8")


def assert_told(kind: str, scenario: str, counted: dict[str, int]) -> None:
    """The document names these steps, as often as they come; not asked of a run whose results it is to hold."""
    if RESULTS is None:
        there = {row[1]: int(row[2]) for row in told(kind) if row[0] == f"`{scenario}`"}
        assert there == counted, "run `make kill-tests`, which writes the table again"


def told(kind: str) -> list[Row]:
    """The rows of a table of the document."""
    body = _split(DOCUMENT.read_text(encoding="utf-8"), kind)[1]
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


def _kill_rows(trials: Sequence[Trial]) -> list[Row]:
    before = steps(trial.step for trial in trials if trial.disturbance == BEFORE)
    after = steps(trial.step for trial in trials if trial.disturbance == AFTER)
    return [
        (f"`{trials[0].scenario}`", step, str(count), str(after.get(step, 0)), _found(_at(trials, step)))
        for step, count in before.items()
    ]


def _later_rows(trials: Sequence[Trial]) -> list[Row]:
    counts = steps(trial.step for trial in trials)
    return [
        (f"`{trials[0].scenario}`", step, str(count), _found(_at(trials, step)))
        for step, count in counts.items()
    ]


def _fault_rows(trials: Sequence[Trial], counted: Mapping[str, int]) -> list[Row]:
    tried = [(step, times, _at(trials, step)) for step, times in counted.items()]
    return [
        (f"`{trials[0].scenario}`", step, str(times), str(len(there)), _found(there))
        for step, times, there in tried
    ]


def _kind_rows(trials: Sequence[Trial]) -> list[Row]:
    rows = []
    for fault in dict.fromkeys(trial.disturbance for trial in trials):
        there = [trial for trial in trials if trial.disturbance == fault]
        went_on = sum(trial.went_on for trial in there)
        rows.append((fault, str(len(there)), str(went_on), str(len(there) - went_on), _found(there)))
    return rows


def _at(trials: Sequence[Trial], step: str) -> list[Trial]:
    return [trial for trial in trials if _NUMBER.sub("", trial.step) == step]


def _found(trials: Sequence[Trial]) -> str:
    wrong = sum(trial.result != WHOLE for trial in trials)
    return WHOLE if not wrong else f"{wrong} of {len(trials)} not whole"


def _split(text: str, kind: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {kind}: begin, written by make kill-tests -->\n", f"<!-- {kind}: end -->\n"
    head, found, rest = text.partition(begin)
    assert found, f"{DOCUMENT.name} has no place for the {kind}"
    body, _, tail = rest.partition(end)
    return head + begin, body, end + tail


def _table(kind: str, rows: Sequence[Row]) -> str:
    columns = _COLUMNS[kind]
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(results: Path) -> None:
    """Put the results of a run into the document."""
    from kill_scenarios import SCENARIOS

    found: dict[str, list[list[Trial]]] = {kind: [] for kind in (KILLS, LATER, INTERRUPTS, FAULTS)}
    fault_rows: list[Row] = []
    for scenario in SCENARIOS:
        for kind, lists in found.items():
            path = results / f"{kind} - {scenario.name}.json"
            kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"trials": []}
            trials = [Trial(**row) for row in kept["trials"]]
            if trials:
                lists.append(trials)
            if trials and kind == FAULTS:
                fault_rows += _fault_rows(trials, kept["counted"])
    tables = {
        KILLS: [row for trials in found[KILLS] for row in _kill_rows(trials)],
        LATER: [row for trials in found[LATER] for row in _later_rows(trials)],
        INTERRUPTS: [
            (f"`{trials[0].scenario}`", str(len(trials)), _found(trials)) for trials in found[INTERRUPTS]
        ],
        FAULTS: fault_rows,
        KINDS: _kind_rows([trial for trials in found[FAULTS] for trial in trials]),
    }
    _write(tables)
    counts = {kind: sum(map(len, lists)) for kind, lists in found.items()}
    print(f"{DOCUMENT.name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")


def _write(tables: Mapping[str, Sequence[Row]]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for kind, rows in tables.items():
        head, _, tail = _split(text, kind)
        text = head + _table(kind, rows) + tail
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
