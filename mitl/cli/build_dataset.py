"""``mitl build-dataset``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common, environment_options
from mitl.records import Environment


@click.command("build-dataset")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the release.")
@click.option("--name", help="Name of the release [default: the folder's].")
@click.option(
    "--recipe",
    type=click.Choice(["paper"]),
    default="paper",
    show_default=True,
    help="paper: verified positives and CxC's.",
)
@click.option(
    "--cxc-threshold", type=click.FloatRange(0, 5), default=3.0, show_default=True, help="SITS from here."
)
@click.option("--with-originals", is_flag=True, help="Add originals that nothing contradicts.")
@click.option("--strict", is_flag=True, help="Only 100% YES makes a positive.")
@click.option("--official-filters", is_flag=True, help="Treat pairs as the released ECCV Caption JSONs do.")
@environment_options
@common
def command(
    app: App,
    out: Path,
    name: str | None,
    recipe: str,
    cxc_threshold: float,
    with_originals: bool,
    strict: bool,
    official_filters: bool,
    environment: Environment | None,
) -> None:
    """Merge judgements with CxC's ratings, apply exclusion lists, and write a release folder.

    The same inputs give the same bytes; a folder that holds them already is left alone.
    """
    from mitl.positives.merging import MergeRules
    from mitl.stages.build_dataset import build_dataset

    rules = MergeRules(
        cxc_threshold=cxc_threshold,
        with_originals=with_originals,
        strict=strict,
        official=official_filters,
    )
    app.finish(build_dataset(app.settings, out, environment, rules=rules, name=name, recipe=recipe))
