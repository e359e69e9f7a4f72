"""``mitl collect``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mitl.cli import CommandGroup
from mitl.cli.app import FILE, App, common, environment_options, refuse_replace
from mitl.cli.publish import BILL, Posting, limit_option, posting_options, require_environment
from mitl.records import Environment


@click.group("collect", cls=CommandGroup)
def command() -> None:
    """Ask people for the partner that an item lacks: a text for an image, or an image for a text.

    `choose` takes the items, `publish` asks; `mitl harvest` takes the answers in, and a second worker reviews each text
    before it counts.
    """


@command.command("choose")
@click.option(
    "--strategy",
    type=click.Choice(["hard-negatives", "core-set", "random"]),
    default="hard-negatives",
    help="How to choose: likely hard negatives of the existing texts, items farthest from all known ones, or "
    "at random.",
)
@click.option("--count", type=click.IntRange(min=1), required=True, help="Number of items to choose.")
@click.option(
    "--from",
    "side",
    type=click.Choice(["images", "captions"]),
    default="images",
    help="Choose images (people write a text) or captions (people pick an image).",
)
@click.option(
    "--items",
    type=FILE,
    metavar="FILE",
    help="Ids to choose from, one per line [default: every image without caption].",
)
@click.option(
    "--annotator",
    default="",
    show_default=False,
    metavar="NAME",
    help="Annotator whose vectors measure hardness and distance [default: the first proposer that has vectors].",
)
@environment_options
@common
def choose_command(app: App, environment: Environment | None, side: str, **wish: Any) -> None:
    """Choose items that lack a partner; run again, it chooses the next ones."""
    from mitl.stages.collecting.choose import CollectWish, choose

    asked = CollectWish(from_images=side == "images", **wish)
    app.finish(choose(app.settings, asked, environment, app.progress))


@command.command("publish", sections={"--per-hit": "HITs", **BILL})
@environment_options
@click.option(
    "--task",
    type=click.Choice(["write", "pick", "review"]),
    help="What to ask: write a text for an image, pick an image for a caption, or review others' work "
    "[default: reviews if texts wait for one, else what is open].",
)
@click.option(
    "--per-hit",
    type=click.IntRange(1, 20),
    help="Tasks per HIT, controls included [default: 5; of reviews 12, 2 of them controls].",
)
@click.option(
    "--offered",
    type=click.IntRange(2, 12),
    default=6,
    help="Images offered for a caption: those that the annotators ranked first.",
)
@click.option(
    "--min-words",
    "least_words",
    type=click.IntRange(min=1),
    help="Minimum words of a text [default: as asked last, at first 4].",
)
@click.option(
    "--max-words",
    "most_words",
    type=click.IntRange(min=1),
    help="Maximum words of a text [default: as asked last, at first 40].",
)
@click.option(
    "--language",
    type=click.Choice(["en", "de", "fr", "es", "any"]),
    help="Language of the texts, checked only by letters and common words [default: as asked last, at first en].",
)
@click.option(
    "--accept",
    type=click.Choice(["yes", "weak_yes"]),
    help="Lowest review answer that accepts a text [default: as asked last, at first weak_yes].",
)
@limit_option("items", "--task and --template")
@click.option(
    "--template",
    metavar="NAME",
    default="",
    show_default=False,
    help="Wording: a folder of hit_templates [default: texts-write, texts-pick or texts-review].",
)
@posting_options
@common
def publish_command(
    app: App,
    environment: Environment | None,
    posting: Posting,
    task: str | None,
    per_hit: int | None,
    accept: str | None,
    **asked: Any,
) -> None:
    """Pack what is open into HITs, print the bill, and post.

    Run again, it completes what was interrupted, alone and under the same bill; otherwise it asks what has opened
    since: reviews of new texts, and refused items, of another worker. The batch keeps its rules, so a text is checked
    against the rules its worker was shown.
    """
    from mitl.campaign.kinds.texts.planning import CollectTexts, due_task, earlier_terms
    from mitl.records import Label

    where = require_environment(environment)
    terms = earlier_terms(app.settings, where)
    told = {name: asked.pop(name) for name in ("least_words", "most_words", "language")}
    rules = replace(terms.rules, **{name: value for name, value in told.items() if value is not None})
    accepts = (Label.YES,) if accept == Label.YES else (Label.YES, Label.WEAK_YES)
    request = CollectTexts(
        environment=where,
        direction=task or due_task(app.settings, where).value,
        per_hit=per_hit or 0,
        terms=replace(terms, rules=rules, **({"accepts": accepts} if accept else {})),
        **posting.terms,
        **asked,
    )
    posting.post(app, request)


@command.command("show")
@environment_options
@click.option(
    "--out",
    "--to",
    "to",
    type=FILE,
    metavar="FILE",
    help="Write the texts beside their pictures to this HTML file.",
)
@click.option("--replace", is_flag=True, help="Overwrite another file of that name.")
@common
def show_command(app: App, environment: Environment | None, to: Path | None, replace: bool) -> None:
    """Show what was chosen, written, accepted and refused, the price of an accepted text, and the texts."""
    from mitl.stages.collecting.show import show

    refuse_replace(replace, to, "--out")
    app.finish(show(app.settings, environment, to=to, replace=replace))
