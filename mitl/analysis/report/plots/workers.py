"""Gold records of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mitl.analysis.report.inputs import WorkerRow, WorkerStanding
from mitl.analysis.report.plots import figure as fig

_STANDINGS = {
    WorkerStanding.GOOD: (fig.YES, "o"),
    WorkerStanding.UNPROVEN: (fig.WEAK_YES, "s"),
    WorkerStanding.POOR: (fig.BEFORE, "^"),
    WorkerStanding.EXCLUDED: (fig.PLAIN, "X"),
}


def workers_svg(workers: Sequence[WorkerRow]) -> str:
    """One dot for each gold record (seen, right); its area grows with the number of workers that have it."""
    shown = [worker for worker in workers if worker.golds_seen > 0]
    if not shown:
        return ""
    places = Counter((w.standing, w.golds_seen, w.golds_right) for w in shown)
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 2.9)
        axes = figure.subplots()
        for standing, (colour, marker) in _STANDINGS.items():
            here = sorted((seen, right, n) for (kind, seen, right), n in places.items() if kind is standing)
            if here:
                axes.scatter(
                    [seen for seen, _, _ in here],
                    [right / seen for seen, right, _ in here],
                    s=[44 + 20 * (n - 1) for _, _, n in here],
                    c=colour,
                    marker=marker,
                    edgecolors=fig.PAPER,
                    linewidths=0.8,
                    label=standing.value,
                    clip_on=False,
                    zorder=3,
                )
        lowest = min(w.golds_right / w.golds_seen for w in shown)
        axes.set_ylim(max(0.0, int(10 * lowest) / 10 - 0.1) - 0.02, 1.04)
        seen_by = [worker.golds_seen for worker in shown]
        axes.set_xlim(max(0, min(seen_by) - 0.06 * max(seen_by) - 1), max(seen_by) * 1.06 + 1)
        axes.set_xlabel("gold controls seen")
        axes.set_title("gold controls answered right, by worker", loc="left")
        axes.xaxis.set_major_locator(fig.whole_numbers())
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.tick_params(axis="y", labelcolor=fig.MUTED, labelsize=8.5)
        fig.bare(axes, grid="y")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="record", alignment="left")
        figure.subplots_adjust(left=0.065, right=0.86, top=0.9, bottom=0.17)
        title = f"Gold records of {len(shown)} workers; see the table"
        return fig.to_svg(figure, "workers", title)
