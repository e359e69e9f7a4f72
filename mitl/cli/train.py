"""``mitl train``."""

from __future__ import annotations

from typing import Any

import click

from mitl.cli.app import App, common, environment_options
from mitl.cli.help import Command
from mitl.records import Environment


@click.command("train", cls=Command)
@click.argument("annotators", nargs=-1, metavar="ANNOTATOR...", required=True)
@click.option("--loss", metavar="NAME", help="What is made small [default: bcls].")
@click.option(
    "--labels",
    type=click.Choice(("binary", "graded", "pseudo")),
    help="Matches alone, people's four levels, or a sentence encoder beside them [default: graded].",
)
@click.option("--steps", type=int, help="Batches [default: 300].")
@click.option("--head-steps", type=int, help="Those after which all parameters learn [default: two thirds].")
@click.option("--batch", type=int, help="Images of a batch [default: 64].")
@click.option("--rate", type=float, help="Learning rate at the start [default: 0.001].")
@click.option(
    "--patience", type=int, help="Looks without a better one before it stops; 0 never [default: 6]."
)
@click.option(
    "--keep",
    type=click.Choice(("best", "last")),
    help="The weights that rank held-out queries best, or those of the last step [default: best].",
)
@click.option(
    "--precision",
    type=click.Choice(("float32", "bfloat16", "float16")),
    help="What products are computed in [default: float32].",
)
@click.option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N [default: the annotator's].")
@click.option("--name", metavar="NAME", help="What comes out is called so [default: ANNOTATOR-tuned].")
@click.option(
    "--restart",
    is_flag=True,
    help="Begin anew where a half-done training had other answers, weights or options.",
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
    """Let annotators learn from the answers so far.

    Originals and people's answers teach; audits never do. A part of the judged images is held out, and the weights that
    rank their queries best are kept. A killed training goes on where it was. de-t2t, de-i2t and de-multitask begin dual
    encoders as in Crisscrossed Captions, which have no weights before.
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
