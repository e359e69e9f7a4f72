"""``mitl annotators``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common
from mitl.records import StageResult, Table


@click.command("annotators")
@common
def command(app: App) -> None:
    """List the machine annotators, what each is and what it needs."""
    from annotators import registry

    known = registry.describe()
    rows = tuple((line.name, "yes" if line.ready else "no", line.what, line.needs) for line in known)
    app.finish(
        StageResult(
            counts={"known": len(known), "ready": sum(line.ready for line in known)},
            tables=(Table("", ("name", "ready", "what it is", "what it needs"), rows),),
        )
    )
