"""``mitl init``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from mitl.cli.app import App, common
from mitl.errors import UsageError
from mitl.stages.setup.loading import KINDS

MINIS = ["pvse-mini", "vsrn-mini", "pcme-mini", "vilt-mini", "clip-mini"]

# parameter -> the kinds of data set that read it; the others are for all kinds
USED_BY: dict[str, tuple[str, ...]] = {
    "captions": ("coco", "table"),
    "split_file": ("coco", "flickr30k"),
    "split": ("coco", "flickr30k"),
    "caption_ids": ("coco",),
    "images": ("coco", "flickr30k", "table"),
    "image_url": ("coco", "flickr30k", "table"),
    "n_images": ("scenes",),
    "defect_share": ("scenes",),
}


@click.command("init")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--dataset", "kind", type=click.Choice(KINDS), required=True, help="What to load.")
@click.option(
    "--captions",
    multiple=True,
    type=click.Path(path_type=Path),
    help="coco: official captions JSON (repeat it) or a compact Parquet/CSV file; table: the table of pairs.",
)
@click.option("--split-file", type=click.Path(path_type=Path), help="Karpathy split JSON (coco, flickr30k).")
@click.option("--split", default="test", show_default=True, help="Which split of that file.")
@click.option(
    "--caption-ids", type=click.Path(path_type=Path), help="Keep these captions only (.npy/.txt/.json)."
)
@click.option("--images", type=click.Path(path_type=Path), help="Folder with the image files.")
@click.option(
    "--image-url",
    metavar="TEMPLATE",
    help="Where images are served: https://…/{file_name} or {image_id:012d}.",
)
@click.option(
    "--n-images", type=click.IntRange(min=1), default=300, show_default=True, help="Size of scenes."
)
@click.option("--defect-share", type=click.FloatRange(0, 1), help="scenes: share of defective captions.")
@click.option("--cxc", type=click.Path(path_type=Path), help="CxC's sits CSV: human ratings to merge.")
@click.option(
    "--exclude",
    multiple=True,
    metavar="paper|FILE",
    help="Exclusion list: 'paper' is the one of ECCV Caption, FILE a CSV; may be repeated.",
)
@common
def command(
    app: App,
    folder: Path | None,
    kind: str,
    captions: tuple[Path, ...],
    split_file: Path | None,
    split: str,
    caption_ids: Path | None,
    images: Path | None,
    image_url: str | None,
    n_images: int,
    defect_share: float | None,
    cxc: Path | None,
    exclude: tuple[str, ...],
) -> None:
    """Make a project in FOLDER (default: the current one) and load its images and captions.

    scenes needs no files: a generated world whose truth is known. The files of the others stay where they
    are; the database remembers their places. A table is CSV or Parquet with image_id and caption (or text), and
    caption_id, file, url if there are any; a Parquet row may list an image's captions and hold its picture.
    """
    from mitl.stages.setup.init import ensure_config, init, loaded_content
    from mitl.stages.setup.loading import Sources, load

    if folder is not None and folder.absolute() != app.settings.project:
        raise UsageError(f"both --project {app.settings.project} and {folder} are given; give one of them")
    _refuse_unused(kind)
    target = app.settings.project
    sources = Sources(
        kind=kind,
        captions=tuple(path.absolute() for path in captions),
        split_file=split_file,
        split=split,
        caption_ids=caption_ids,
        images=None if images is None else images.absolute(),
        image_url=image_url,
        n_images=n_images,
        defect_share=defect_share,
        cxc=cxc,
        exclusions=exclude,
    )
    # The database is looked at first: a generated world writes its pictures.
    expected = loaded_content(app.settings)
    loaded = load(sources, target, seed=app.settings.seed, expected=expected, progress=app.progress)
    tables: dict[str, dict[str, Any]] = {"dataset": {"kind": kind}}
    if kind == "scenes":
        tables["propose"] = {"annotators": MINIS}
    url = _url_to_keep(app.settings.db_url)
    if url is not None:
        tables["database"] = {"url": url}
    result = init(
        app.settings,
        loaded.data,
        ratings=loaded.ratings,
        exclusions=loaded.exclusions,
        annotators=app.settings.annotators or (MINIS if kind == "scenes" else ()),
    )
    # Last, so that a failure leaves no settings of a project that does not exist.
    ensure_config(target, loaded.data.name, app.settings.seed, tables)
    app.finish(result)


def _url_to_keep(url: str) -> str | None:
    """A server's URL given as an option, so that later commands find it; never one that holds a password."""
    from sqlalchemy.engine import make_url

    source = click.get_current_context().get_parameter_source("db")
    parsed = make_url(url)
    if source is not click.core.ParameterSource.COMMANDLINE or parsed.get_backend_name() == "sqlite":
        return None
    return None if parsed.password else url


def _refuse_unused(kind: str) -> None:
    """UsageError for an option that data sets of this kind have no use for."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and kind not in USED_BY.get(name, KINDS):
            raise UsageError(
                f"{kind} has no use for {parameter.opts[0]}, which is for {' and '.join(USED_BY[name])}; leave it out"
            )
