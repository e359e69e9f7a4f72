"""``mitl train``."""

from __future__ import annotations

from typing import Any

import click

from mitl.cli.app import App, common, environment_options
from mitl.cli.help import Command
from mitl.records import Environment


@click.command("train", cls=Command)
@click.argument("annotators", nargs=-1, metavar="ANNOTATOR...", required=True)
@click.option("--loss", metavar="NAME", help="Loss to minimise [default: bcls].")
@click.option(
    "--labels",
    type=click.Choice(("binary", "graded", "pseudo")),
    help="Targets: matches only, people's four levels, or those plus a sentence encoder's similarities "
    "[default: graded].",
)
@click.option("--steps", type=int, help="Batches [default: 300].")
@click.option(
    "--head-steps", type=int, help="Batches before all parameters are trained [default: two thirds]."
)
@click.option("--batch", type=int, help="Images of a batch [default: 64].")
@click.option("--rate", type=float, help="Learning rate at the start [default: 0.001].")
@click.option(
    "--patience",
    type=int,
    help="Evaluations without improvement before it stops; 0 never stops early [default: 6].",
)
@click.option(
    "--keep",
    type=click.Choice(("best", "last")),
    help="Keep the weights that rank held-out queries best, or those of the last step [default: best].",
)
@click.option(
    "--precision",
    type=click.Choice(("float32", "bfloat16", "float16")),
    help="Precision of the matrix products [default: float32].",
)
@click.option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N [default: the annotator's].")
@click.option("--name", metavar="NAME", help="Name of the trained annotator [default: ANNOTATOR-tuned].")
@click.option(
    "--restart",
    is_flag=True,
    help="Start over if an unfinished training used other answers, weights or options.",
)
@environment_options
@common
def command(
    app: App,
    environment: Environment | None,
    annotators: tuple[str, ...],
    device: str | None,
    name: str | None,
    restart: bool,
    **given: Any,
) -> None:
    """Train annotators on the answers so far.

    Originals and people's answers are the training data; audits never are. Part of the judged images is held out, and
    the weights that rank their queries best are kept. A killed training resumes. de-t2t, de-i2t and de-multitask
    begin dual encoders as in Crisscrossed Captions, which have no weights before.
    """
    from annotators.training.recipe import LabelKind, Recipe
    from mitl.stages.training.train import TrainRequest, train

    chosen = {key: value for key, value in given.items() if value is not None}
    if "steps" in chosen:
        chosen.setdefault("head_steps", chosen["steps"] * 2 // 3)
    if "labels" in chosen:
        chosen["labels"] = LabelKind(chosen["labels"])
    recipe = Recipe(**{"seed": app.settings.seed, **chosen})
    request = TrainRequest(annotators, recipe, name, device, restart=restart)
    app.finish(train(app.settings, request, environment, progress=app.progress))
