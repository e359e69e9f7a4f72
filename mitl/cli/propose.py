"""``mitl propose``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli.app import App, common


@click.command("propose")
@click.option(
    "--annotator", "annotators", multiple=True, metavar="NAME", help="Ask this one; may be repeated."
)
@click.option("--top-k", type=click.IntRange(min=1), help="Proposed per query and annotator [default: 5].")
@click.option("--depth", type=click.IntRange(min=1), help="Kept in the ranking files [default: 25].")
@click.option("--image-queries", type=click.IntRange(min=0), help="How many images search [default: all].")
@click.option(
    "--caption-queries", type=click.IntRange(min=0), help="How many captions search [default: all]."
)
@click.option(
    "--image-query-ids",
    type=click.Path(path_type=Path),
    metavar="FILE|eccv",
    help="Which images search: ids one a line, .json or .npy; eccv names ECCV Caption's public queries.",
)
@click.option(
    "--caption-query-ids",
    type=click.Path(path_type=Path),
    metavar="FILE|eccv",
    help="Which captions search, in the same way.",
)
@common
def command(
    app: App,
    annotators: tuple[str, ...],
    top_k: int | None,
    depth: int | None,
    image_queries: int | None,
    caption_queries: int | None,
    image_query_ids: Path | None,
    caption_query_ids: Path | None,
) -> None:
    """Rank both directions with every annotator and store candidate pairs.

    Each finished ranking is a file in runs/; an interrupted run goes on with the next one.
    """
    from mitl.stages.propose import QueryChoice, propose

    settings = app.settings
    result = propose(
        settings,
        annotators=annotators or settings.annotators,
        top_k=settings.top_k if top_k is None else top_k,
        depth=settings.depth if depth is None else depth,
        images=QueryChoice(
            settings.image_queries if image_queries is None else image_queries, image_query_ids
        ),
        captions=QueryChoice(
            settings.caption_queries if caption_queries is None else caption_queries, caption_query_ids
        ),
        progress=app.progress,
    )
    app.finish(result)
