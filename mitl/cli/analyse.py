"""``mitl analyse``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment


@click.command("analyse")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--annotator",
    "annotators",
    multiple=True,
    metavar="NAME",
    help="Only this one; may be given again [default: all].",
)
@click.option(
    "--scores",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="CSV for correlations: a column `model`, one for each metric, and where wanted `direction`, over which "
    "scores are averaged [default: the scores that `mitl evaluate` keeps].",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="SET",
    help="One more set for sets, named as for `mitl compare`; may be given again.",
)
@click.option(
    "--subset",
    "subsets",
    multiple=True,
    metavar="NAME,NAME",
    help="One more column for the scores of bias: only the positives that these annotators proposed.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="For bias, rank as deep as the largest number of positives of a query; the annotators are loaded for it.",
)
@click.option(
    "--csv",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write every number there too, as CSV files.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Draw what is better looked at there, as SVG files.",
)
@environment_options
@common
def command(
    app: App,
    names: tuple[str, ...],
    annotators: tuple[str, ...],
    scores: Path | None,
    sets: tuple[str, ...],
    subsets: tuple[str, ...],
    deep: bool,
    csv: Path | None,
    plots: Path | None,
    environment: Environment | None,
) -> None:
    """The tables that a reviewer asks for; all of them where no NAME is given.

    NAME is diversity (how differently the annotators rank), answers (by annotator and rank), rationale (shortcomings
    and wrong concepts), workers (by their number of HITs), sets (precision and recall of existing positives),
    wrong-positives (matches of people with a wrong part, as a list to exclude and as a figure), multiplicity
    (positives of a query, before and after), label-order (rankings against graded answers), correlations (how alike
    metrics rank models, and RSUM), bias (scores by whose proposals make the positives; in a generated world against
    the truth) or uncertainty (an annotator's own, against the number of positives).

    An analysis for which the project holds too little says so in one line, and the others are made.
    """
    from mitl.stages.analysing.analyse import Wanted, analyse

    wanted = Wanted(
        annotators=annotators,
        scores=scores,
        sets=sets,
        subsets=tuple(frozenset(part.strip() for part in one.split(",")) for one in subsets),
        deep=deep,
        csv=csv,
        plots=plots,
    )
    app.finish(analyse(app.settings, names, environment, wanted=wanted, progress=app.progress))
