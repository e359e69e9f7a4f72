"""``mitl prefer``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli import CommandGroup
from mitl.cli.app import PLACE, SHARE, App, Number, WayChoice, common, environment_options, refuse_idle
from mitl.cli.publish import BILL, Posting, limit_option, posting_options, require_environment, workers_option
from mitl.errors import UsageError
from mitl.records import Direction, Environment


@click.group("prefer", cls=CommandGroup)
def command() -> None:
    """Ask people which of two rankings is better, and score the systems by what they say.

    Two rankings of one query stand side by side, whose they are is told nowhere. `mitl harvest` takes the answers in.
    """


@command.command("publish", sections={"--per-hit": "HITs", **BILL})
@environment_options
@click.option(
    "--direction",
    type=WayChoice(["t2i", "i2t"]),
    default="t2i",
    help="t2i: captions search images; i2t: images search captions.",
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="An annotator of the latest run, repeatable [default: all of them, unless --rankings is given].",
)
@click.option(
    "--rankings",
    multiple=True,
    metavar="NAME=FILE",
    help="Another system: its rankings in Parquet with query_id, rank, item_id, similarity; repeatable.",
)
@click.option(
    "--designed",
    metavar="scenes|official|release:DIR",
    help="In place of systems, the five made rankings of the paper's study (only rank 1 wrong, only rank 1 right, "
    "1 to 5 wrong, only rank 5 right, all wrong), on queries with 5 to 8 of these positives; --top-k does not count.",
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    default=40,
    help="Random queries among those that all systems ranked; every two systems are compared on each.",
)
@click.option("--top-k", type=click.IntRange(1, 10), default=5, help="Results shown per list.")
@click.option(
    "--per-hit",
    type=click.IntRange(1, 20),
    default=10,
    help="Comparisons per HIT, controls included.",
)
@click.option(
    "--controls",
    type=click.IntRange(min=0),
    default=2,
    help="Controls among them: one list of random items against one that begins with known positives.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Only ask again, as they were, pages of any study whose answers could not be used.",
)
@workers_option(3, most=None)
@limit_option("comparisons", "--direction, --template and systems (--system, --rankings or --designed)")
@click.option("--template", default="rankings-plain", help="Wording: a folder of hit_templates.")
@posting_options
@common
def publish_command(
    app: App,
    environment: Environment | None,
    posting: Posting,
    direction: str,
    rankings: tuple[str, ...],
    **asked: Any,
) -> None:
    """Compare every two systems side by side on the same queries: print the bill, and post.

    Run again, it completes what was interrupted, alone and under the same bill; else it posts what is missing and
    nothing twice, and asks work again that could not be used. More --queries add to what was asked. Left and right
    are random and balanced.
    """
    from mitl.campaign.kinds.rankings.systems import PreferenceStudy

    if asked["again"]:
        built = ("queries", "top_k", "per_hit", "controls")
        refuse_idle(built, "means nothing beside --again, which asks pages as they were; leave it out")
    study = PreferenceStudy(
        environment=require_environment(environment),
        direction=Direction(direction),
        files=tuple(map(_named_file, rankings)),
        **posting.terms,
        **asked,
    )
    posting.post(app, study)


@command.command("scores")
@environment_options
@click.option(
    "--batch",
    "batches",
    multiple=True,
    metavar="NAME",
    help="Count only the preferences of this batch; repeat for several.",
)
@click.option("--direction", type=WayChoice(["t2i", "i2t"]), help="Count only this direction.")
@click.option(
    "--counts",
    "table",
    type=PLACE,
    metavar="FILE",
    help="Score this CSV table instead: row i, column j holds how often i was preferred to j.",
)
@click.option(
    "--ties",
    type=click.Choice(["half", "davidson"]),
    default="half",
    help="Count a tie as half a win for each, or model it (Davidson).",
)
@click.option(
    "--prior",
    type=Number(min=0),
    default=0.0,
    help="Pseudo-wins each way between every two systems; above 0, scores exist even if a system never won.",
)
@click.option(
    "--resample",
    type=click.Choice(["workers", "answers"]),
    help="What the bootstrap draws [default: workers; answers with --counts].",
)
@click.option("--samples", type=click.IntRange(1, 100_000), default=1000, help="Resamples.")
@click.option("--confidence", type=SHARE, default=0.95, help="Share of the resamples within the interval.")
@click.option("--csv", "to", type=PLACE, metavar="FILE", help="Also write the scores to this file.")
@common
def scores_command(
    app: App,
    environment: Environment | None,
    batches: tuple[str, ...],
    direction: str | None,
    table: Path | None,
    ties: str,
    resample: str | None,
    to: Path | None,
    **method_of: Any,
) -> None:
    """Bradley-Terry scores of the systems in percent, with intervals, and the counts behind them.

    Preferences count if the submission is approved; answers to controls never count.
    """
    from mitl.analysis.bradley_terry import TieRule
    from mitl.campaign.kinds.rankings.scores import Method, score_counts, score_votes

    by_worker = resample != "answers" and table is None
    method = Method(TieRule(ties), by_worker=by_worker, **method_of)
    if table is not None:
        if environment is not None or batches or direction is not None or resample == "workers":
            raise UsageError(
                "--counts scores a file that knows no batches, directions or workers; leave --sandbox, --live, "
                "--batch, --direction and --resample workers out"
            )
        app.finish(score_counts(app.settings, table, method=method, to=to))
        return
    chosen = None if direction is None else Direction(direction)
    app.finish(
        score_votes(app.settings, environment, batches=batches, direction=chosen, method=method, to=to)
    )


def _named_file(text: str) -> tuple[str, Path]:
    name, equals, file = text.partition("=")
    if not (name.strip() and equals and file):
        raise UsageError(f"{text!r} is not a NAME=FILE; write --rankings mine=rankings.parquet")
    return name.strip(), Path(file)
