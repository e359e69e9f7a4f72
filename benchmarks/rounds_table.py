"""Tables and the figure of the study of rounds, from the states that it kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine_labels import Outcome, State, in_full, in_part
from numpy.typing import NDArray
from scipy.stats import t as student
from shared_kit import svg_plots

from mitl.audits.machine_labels import Promise

SAMPLE = 1500
WRONG, LOST = 2 / 3, 2.0
"""The rule, for all crowds: what a machine may err on either side, by the share of pairs on which one worker errs.

Chosen on the worlds of seeds 2 and 3, before any other was scored.
"""
QUARTER, WITHIN = 0.25, 0.01
PEOPLE, JUDGE, RULE, SIDING = "people alone", "judge, no bound", "rule", "rule, siding measured"

Key = tuple[str, ...]
"""Images, workers, strategy, judge, pairs asked in per cent, plan."""


@dataclass(frozen=True)
class Point:
    """A state and a plan beside the full round of the same world and workers."""

    seed: int
    share: float
    """Answers, as a share of the full round's."""
    found: float
    """Recall."""
    recall: float
    """Less the full round's."""
    precision: float
    machine: float
    wrong: float
    broken: bool
    area: float

    @property
    def holds(self) -> bool:
        """Whether a quarter of the answers brings the full round's recall, at precision within 0.01."""
        return self.share <= QUARTER and self.recall >= 0 and self.precision >= -WITHIN


def worker_error(state: State) -> float:
    """On how many pairs one usable answer is wrong, by how often two workers differ: d = 2 e (1 - e)."""
    apart = float(((state.first < 2) != (state.second < 2)).mean())
    return float((1 - (1 - 2 * min(apart, 0.5)) ** 0.5) / 2)


def tolerated(state: State) -> Promise:
    """By the rule: from what people answered, without the truth."""
    error = worker_error(state)
    return Promise(WRONG * error, LOST * error)


def people(state: State) -> Outcome:
    """Nothing more is asked, and what nobody was asked about is no match."""
    said = np.zeros(len(state.truth), np.bool_)
    said[state.rows[::-1]] = state.labels[::-1] < 2
    return Outcome(state.answered, *_scores(state, said))


def unbounded(state: State) -> Outcome:
    """The judge decides about every open pair, under no bound."""
    said = state.probability >= 0.5
    said[state.rows[::-1]] = state.labels[::-1] < 2
    left = state.open
    wrong = float((said != state.match)[left].mean())
    return Outcome(state.answered, *_scores(state, said), len(left) / len(said), (), wrong)


def _scores(state: State, said: NDArray[np.bool_]) -> tuple[float, float]:
    right = float((said & state.match).sum())
    return right / float(state.match.sum()), right / max(float(said.sum()), 1.0)


def points(state: State, full: Outcome) -> dict[str, Point]:
    """Of one state, by plan."""
    found = {PEOPLE: people(state), JUDGE: unbounded(state)}
    for plan, siding in ((RULE, 0.0), (SIDING, None)):
        found[plan] = in_part(state, SAMPLE, tolerated(state), 0, siding=siding)
    return {
        plan: Point(
            int(state.name.split(".")[1]),
            one.answers / full.answers,
            one.recall,
            one.recall - full.recall,
            one.precision - full.precision,
            one.machine,
            one.wrong,
            any(one.broken),
            state.area,
        )
        for plan, one in found.items()
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval over worlds by Student's t; NaN of one world."""
    n = len(values)
    half = student.ppf(0.975, n - 1) * np.std(values, ddof=1) / n**0.5 if n > 1 else np.nan
    return float(np.mean(values)), float(half)


def write_tables(states: Sequence[State], figure: Path | None) -> None:
    """Print the full rounds, a line for each way of asking, and the strategies less chance."""
    full: dict[Key, Outcome] = {}
    groups: dict[Key, list[Point]] = {}
    for state in states:
        images, seed, workers, strategy, judge, asked = state.name.split(".")
        world = (images, seed, workers)
        if world not in full:
            full[world] = one = in_full(state, 0)
            print(
                f"# {', '.join(world)}: {len(state.truth):,} candidates, {state.match.sum():,} match; a full round: "
                f"{one.answers:,} answers, recall {one.recall:.4f}, precision {one.precision:.4f}; two workers differ "
                f"as if one erred on {worker_error(state):.4f}",
                flush=True,
            )
        for plan, point in points(state, full[world]).items():
            groups.setdefault((images, workers, strategy, judge, asked, plan), []).append(point)
    print(
        "| images | workers | asks for | judge | asked | plan | seeds | AUC where open | answers | recall | precision "
        "| by machine | wrong of these | goal | broken |"
    )
    print(
        "| ---: | --- | --- | --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for key, own in groups.items():
        told = (
            f"{told_as(own, 'area', '.3f')} | {told_as(own, 'share', '.3f')} | {told_as(own, 'recall', '+.3f')} | "
            f"{told_as(own, 'precision', '+.3f')} | {told_as(own, 'machine', '.2f')} | {told_as(own, 'wrong', '.3f')}"
        )
        holds, broken = (sum(getattr(point, name) for point in own) for name in ("holds", "broken"))
        seeds = " ".join(str(point.seed) for point in own)
        print(f"| {' | '.join(key)} | {seeds} | {told} | {holds} of {len(own)} | {broken} |")
    _print_paired(groups)
    if figure is not None:
        draw(groups, figure)


def told_as(own: Sequence[Point], name: str, form: str) -> str:
    """The mean, with its interval where there are several worlds."""
    mean, half = interval([float(getattr(point, name)) for point in own])
    return format(mean, form) + ("" if np.isnan(half) else f" ± {half:{form.lstrip('+')}}")


def _print_paired(groups: Mapping[Key, Sequence[Point]]) -> None:
    """Each strategy less chance on the same worlds: what people alone find, and what the rule's labels cost."""
    for key, own in groups.items():
        images, workers, strategy, judge, asked, plan = key
        chance = groups.get((images, workers, "random", judge, asked, plan))
        if chance is None or strategy == "random" or plan not in (PEOPLE, RULE):
            continue
        name = "found" if plan == PEOPLE else "share"
        of_chance = {point.seed: getattr(point, name) for point in chance}
        apart = [getattr(point, name) - of_chance[point.seed] for point in own if point.seed in of_chance]
        if not any(apart):
            continue  # the pilot is everybody's
        mean, half = interval(apart)
        words = "told apart" if abs(mean) > half else "not told apart"
        what = "recall" if plan == PEOPLE else "answers"
        print(f"# {strategy} less chance, {asked} % asked, {plan}: {what} {mean:+.3f} ± {half:.3f}, {words}")


def draw(groups: Mapping[Key, Sequence[Point]], path: Path) -> None:
    """People's recall, and recall and precision of the rule's labels less a full round's, by the share of answers."""
    plt = svg_plots()
    panels = (
        (PEOPLE, "found", "recall of people alone"),
        (RULE, "recall", "with machine labels: recall, less a full round's"),
        (RULE, "precision", "with machine labels: precision, less a full round's"),
    )
    several = len({key[2] for key in groups}) > 1
    drawn, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    colours: dict[str, str] = {}
    for axis, (plan, name, title) in zip(axes, panels, strict=True):
        lines: dict[str, list[tuple[tuple[float, float], tuple[float, float]]]] = {}
        for (_, workers, strategy, _, _, of), own in groups.items():
            label = strategy if several else workers
            if of == SIDING and plan == RULE and not several:
                label += ", siding measured"
            elif of != plan:
                continue
            at, value = (interval([getattr(p, n) for p in own]) for n in ("share", name))
            lines.setdefault(label, []).append((at, value))
        for label, line in lines.items():
            (x, _), (y, high) = (np.array(part).T for part in zip(*sorted(line), strict=True))
            name_only, *with_siding = label.split(", ")
            axis.errorbar(
                x,
                y,
                high,
                color=colours.setdefault(name_only, f"C{len(colours)}"),
                linestyle="--" if with_siding else "-",
                marker="o",
                markersize=3,
                linewidth=1,
                elinewidth=0.6,
                label=label,
            )
        if plan == RULE:
            axis.axhline(0, color="black", linewidth=0.8)
            axis.axhline(-WITHIN, color="gray", linewidth=0.8, linestyle=":")
            axis.axvline(QUARTER, color="gray", linewidth=0.8, linestyle=":")
        axis.set_xlim(left=0)
        axis.set_xlabel("answers, as a share of a full round's")
        axis.set_title(title)
    axes[0].set_ylim(0, 1)
    drawn.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=9, frameon=False)
    drawn.savefig(path, metadata={"Date": None, "Creator": None})
