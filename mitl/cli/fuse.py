"""``mitl fuse``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, environment_options
from mitl.cli.help import Command
from mitl.records import Environment


@click.command("fuse", cls=Command)
@environment_options
@common
def command(app: App, environment: Environment | None) -> None:
    """Give each ranked pair one calibrated probability of a match.

    It is learnt from people's answers so far, cross-fitted so that no answer judges itself, from the annotators'
    similarities and ranks, similarity among captions and among images, and answers to other pairs. Its AUC comes
    first: it tells how well matches are separated, and so how many pairs a machine could take over.
    """
    from mitl.stages.fusing.fuse import fuse

    app.finish(fuse(app.settings, environment, progress=app.progress))
