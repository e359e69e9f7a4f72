"""``mitl round``: budgets that go where they count, round by round; ``mitl train``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mitl.cli import Command, CommandGroup
from mitl.cli.app import (
    DOLLARS,
    SECONDS,
    SHARE,
    App,
    common,
    endpoint_option,
    environment_options,
    together,
    total_confirmed,
)
from mitl.cli.publish import require_environment
from mitl.cli.tables import printable
from mitl.errors import UsageError
from mitl.records import Environment

if TYPE_CHECKING:
    from mitl.stages.rounds.wish import AnswerWait, RoundRequest, Talk

_SECTIONS = {"--label-error": "What the machine labels", "--train": "Learning", "--yes": "Posting"}


@click.group("round", cls=CommandGroup)
def command() -> None:
    """Choose what people are asked, under a budget: train, propose, fuse, choose, publish, harvest, label, certify."""


_wish_options = together(
    click.option(
        "--budget",
        "budget_cents",
        type=DOLLARS,
        help="Upper limit on the cost of one round's HITs, e.g. 20.00.",
    ),
    click.option(
        "--strategy", default="expected", help="Strategy that orders the pairs to ask; `doubts` asks again."
    ),
    click.option(
        "--annotators",
        metavar="A,B",
        default="",
        show_default=False,
        help="Annotators that propose [default: those of mitl.toml].",
    ),
    click.option(
        "--ranks",
        type=click.IntRange(min=1),
        metavar="N",
        help="Choose only among each ranking's first N items [default: all that were kept].",
    ),
    click.option(
        "--per-item",
        type=click.IntRange(min=1),
        metavar="N",
        help="Choose at most N pairs of one image, and of one caption; near-duplicates come later [default: any].",
    ),
    click.option("--template", default="pairs-plain", help="Wording: a folder of hit_templates."),
    click.option("--assignments", type=click.IntRange(1, 100), default=1, help="Workers per HIT."),
    click.option("--reward", "reward_cents", type=DOLLARS, help="Per HIT [default: as `mitl publish`]."),
    click.option(
        "--label-error",
        type=SHARE,
        help="Let the machine label the pairs it is sure of, with at most this share wrong.",
    ),
    click.option(
        "--label-sample",
        type=click.IntRange(min=1),
        metavar="PAIRS",
        help="Size of the random sample that bounds it, drawn once and asked first.",
    ),
    click.option(
        "--train/--no-train",
        default=False,
        show_default=False,
        help="Train the annotators on the answers so far first [default: no].",
    ),
    click.option("--loss", metavar="NAME", help="Training loss, as for `mitl train`."),
    click.option(
        "--labels",
        type=click.Choice(("binary", "graded", "pseudo")),
        help="Training targets, as for `mitl train`.",
    ),
    click.option("--steps", type=click.IntRange(min=1), help="Training batches, as for `mitl train`."),
    click.option("--yes", is_flag=True, help="Do not ask before posting a bill that the budget covers."),
)
"""What a round is asked for: fields of a `RoundRequest`, and ``yes``."""


def _wish(asked: dict[str, Any], turns: int = 1) -> RoundRequest:
    from mitl.stages.rounds.wish import RoundRequest

    annotators = tuple(name.strip() for name in asked["annotators"].split(",") if name.strip())
    return RoundRequest(**{**asked, "annotators": annotators}, turns=turns)


def _talk(
    app: App, environment: Environment | None, *, yes: bool = False, crowd: AnswerWait | None = None
) -> Talk:
    from mitl.stages.rounds.wish import AnswerWait, Talk

    def say(line: str) -> None:
        if not app.quiet:
            click.echo(printable(line))

    typed = total_confirmed(None, subject="the bill", verb="post", undone="nothing was posted")

    def confirm(total: int) -> bool:
        # Every bill is bounded by what is left of the budget before anybody is asked.
        if yes or environment is None:
            return yes
        if environment is Environment.LIVE and not sys.stdin.isatty():
            raise UsageError("standard input is not a terminal; add --yes to post what the budget covers")
        return typed(environment, total)

    return Talk(confirm, say, app.progress, crowd or AnswerWait())


@command.command("next", sections=_SECTIONS)
@environment_options
@_wish_options
@click.option("--dry-run", is_flag=True, help="Print what the round would ask and cost now; open nothing.")
@endpoint_option
@common
def next_(app: App, environment: Environment | None, yes: bool, dry_run: bool, **wish: Any) -> None:
    """Open a round, choose its pairs and post them.

    Run again, it resumes. A posted round is closed first, once all its pairs are answered; until then no new round
    opens.
    """
    chosen = require_environment(environment)
    if wish["budget_cents"] is None:
        raise UsageError("say what the round may cost: add --budget, as --budget 20.00")
    from mitl.stages.rounds import walking

    if dry_run:
        app.finish(walking.dry_run(app.settings, chosen, _wish(wish)))
    else:
        app.finish(walking.next_round(app.settings, chosen, _wish(wish), _talk(app, chosen, yes=yes)))


@command.command("run", sections=_SECTIONS)
@environment_options
@click.option("--rounds", type=click.IntRange(min=1), default=1, help="Number of rounds in all.")
@_wish_options
@click.option(
    "--wait",
    type=SECONDS,
    metavar="SECONDS",
    help="Poll at this interval until all answers are in [default: look once and stop if some are missing].",
)
@click.option(
    "--workers",
    metavar="POPULATION",
    help="Let scripted workers answer in the sandbox, as for `mitl simulate --workers`.",
)
@endpoint_option
@common
def run(
    app: App,
    environment: Environment | None,
    rounds: int,
    yes: bool,
    wait: float | None,
    workers: str | None,
    **wish: Any,
) -> None:
    """Run rounds to their end, each with its own budget; the same command resumes where it stopped.

    Without --budget it finishes the open round and opens no other.
    """
    chosen = require_environment(environment)
    if workers is not None and (chosen is Environment.LIVE or wait is not None):
        raise UsageError(
            "--workers are scripted and answer at once in the sandbox; leave out --live and --wait"
        )
    if wish["budget_cents"] is None and rounds > 1:
        raise UsageError("--rounds opens rounds; say what each may cost: add --budget, as --budget 20.00")
    from mitl.stages.rounds.walking import run_rounds
    from mitl.stages.rounds.wish import AnswerWait

    asked = None if wish["budget_cents"] is None else _wish(wish, rounds)
    talk = _talk(app, chosen, yes=yes, crowd=AnswerWait(wait, workers))
    app.finish(run_rounds(app.settings, chosen, asked, talk))


@command.command("close")
@environment_options
@endpoint_option
@common
def close(app: App, environment: Environment | None) -> None:
    """Close the open round with the answers received; unanswered pairs stay open."""
    from mitl.stages.rounds.walking import close

    app.finish(close(app.settings, environment, _talk(app, environment)))


@command.command("show")
@environment_options
@common
def show(app: App, environment: Environment | None) -> None:
    """Show each round: pairs asked, money paid, matches found, matches per dollar, bounds, who proposed them."""
    from mitl.stages.rounds.figures import show

    app.finish(show(app.settings, environment))


@command.command("rollback")
@click.argument("number", type=click.IntRange(min=1), required=False)
@environment_options
@common
def rollback(app: App, number: int | None, environment: Environment | None) -> None:
    """Undo the newest round; its answers and their cost stay."""
    from mitl.stages.rounds.walking import rollback

    app.finish(rollback(app.settings, environment, number))


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
def train(
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
