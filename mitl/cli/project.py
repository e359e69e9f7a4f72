"""``mitl init``, ``status``, ``demo`` and ``completion``: a project as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

import click
from click.shell_completion import CompletionItem, get_completion_class

from annotators.catalog import world_annotators
from mitl.cli import Command
from mitl.cli.app import PLACE, App, Number, common, typed
from mitl.errors import UsageError
from mitl.records.results import printed_by
from mitl.stages.setup.loading import KINDS, WORLDS

# parameter -> the kinds of data set that read it; the others are for all kinds
USED_BY: dict[str, tuple[str, ...]] = {
    "captions": ("coco", "table"),
    "split_file": ("coco", "flickr30k"),
    "split": ("coco", "flickr30k", "table", "beir", "msmarco", "cirr", "circo"),
    "columns": ("table",),
    "skip_empty": ("table", "beir", "msmarco", "cirr", "circo"),
    "caption_ids": ("coco",),
    "images": ("coco", "flickr30k", "table", "cirr", "circo"),
    "image_url": ("coco", "flickr30k", "table"),
    "n_images": ("scenes",),
    "world": ("scenes",),
    "defect_share": ("scenes",),
    "cxc": KINDS,
    "exclude": KINDS,
    "check_items": (*KINDS, "cirr", "circo"),
}


def _complete_dataset(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The kinds, then whatever files the shell offers."""
    kinds = [CompletionItem(kind) for kind in KINDS if kind.startswith(incomplete)]
    return [*kinds, CompletionItem(incomplete, type="file")]


@click.command("init", cls=Command)
@click.argument("folder", required=False, type=PLACE)
@click.option(
    "--dataset",
    "dataset",
    required=True,
    metavar="|".join((*KINDS, "PATH")),
    shell_complete=_complete_dataset,
    help="What to load: one of these, or the path of a table, of shards, of a folder with pictures and captions, "
    "of BEIR's or MS MARCO's texts, or of CIRR's or CIRCO's queries.",
)
@click.option(
    "--captions",
    multiple=True,
    type=PLACE,
    help="coco: official captions JSON (repeat it) or a compact Parquet/CSV file; table: the table of pairs.",
)
@click.option("--split-file", type=PLACE, help="Karpathy split JSON (coco, flickr30k).")
@click.option(
    "--split",
    help="Which split of that file, or several (train+restval), or which of a table or folder [default there: test].",
)
@click.option(
    "--columns",
    multiple=True,
    metavar="ROLE=COLUMN",
    help="table: which column plays a role, e.g. caption=text; repeatable. Roles: image, sound, video, "
    "reference, image_id, "
    "url, caption, caption_id, split.",
)
@click.option("--skip-empty", is_flag=True, help="table: skip empty captions instead of refusing the table.")
@click.option("--caption-ids", type=PLACE, help="Keep only these captions (.npy/.txt/.json).")
@click.option(
    "--images",
    "--media",
    "images",
    type=PLACE,
    help="Folder with the files of the images, sounds or videos.",
)
@click.option(
    "--image-url",
    metavar="TEMPLATE",
    help="URL at which images are served: https://…/{file_name} or {image_id:012d}.",
)
@click.option(
    "--n-images", type=click.IntRange(min=1), default=300, help="Number of images to generate (scenes)."
)
@click.option(
    "--kind",
    "world",
    type=click.Choice(WORLDS),
    default=WORLDS[0],
    help="scenes: the kind of items to generate.",
)
@click.option("--defect-share", type=Number(0, 1), help="scenes: share of defective captions.")
@click.option("--cxc", type=PLACE, help="Human ratings to merge, in the layout of CxC's sits CSV.")
@click.option(
    "--exclude",
    multiple=True,
    metavar="paper|FILE",
    help="Exclusion list: 'paper' is ECCV Caption's, FILE a CSV; repeatable.",
)
@click.option(
    "--check-items",
    is_flag=True,
    help="Open every picture, sound or video and name those that are missing, unreadable, silent, animated "
    "or duplicates. Loads nothing if none is usable; otherwise you can fix the files later.",
)
@common
def init(
    app: App,
    folder: Path | None,
    dataset: str,
    captions: tuple[Path, ...],
    images: Path | None,
    exclude: tuple[str, ...],
    check_items: bool,
    **given: Any,
) -> None:
    """Make a project in FOLDER (default: the current one) and load its images and captions.

    scenes needs no files: a generated world whose truth is known. The files of the others stay where they
    are; the database remembers their places. A PATH is CSV, TSV, JSON lines, Parquet, WebDataset shards, a folder with
    captions.txt, metadata.jsonl or results.csv, what save_to_disk wrote, MSR-VTT's JSON, or a folder of texts or
    composed queries: BEIR's corpus.jsonl, queries.jsonl and qrels, MS MARCO's collection.tsv, CIRR's captions and
    image_splits, CIRCO's annotations. Pictures, sounds, videos and references are known by the columns' names and the
    files' suffixes, and what was read as what is printed.
    """
    from mitl.datasets.checking import check_items as look_at
    from mitl.stages.setup.init import (
        ensure_config,
        examples_of_settings,
        init,
        loaded_content,
        whole_project,
    )
    from mitl.stages.setup.loading import DatasetSources, kind_or_path, load

    if folder is not None and folder.absolute() != app.settings.project:
        raise UsageError(f"both --project {app.settings.project} and {folder} are given; give one of them")
    kind, files, name = kind_or_path(dataset, captions)
    _refuse_unused(kind)
    target = app.settings.project
    sources = DatasetSources(
        kind=kind,
        name=name,
        captions=tuple(path.absolute() for path in files),
        images=None if images is None else images.absolute(),
        exclusions=exclude,
        **given,
    )
    with whole_project(app.settings):
        # The database is looked at first: a generated world writes its pictures.
        expected = loaded_content(app.settings)
        loaded = load(sources, target, seed=app.settings.seed, expected=expected, progress=app.progress)
        checked = look_at(loaded.data, target, loaded.told.files, app.progress) if check_items else None
        proposers = world_annotators(loaded.data.sides)
        annotators = app.settings.annotators or (proposers if kind == "scenes" else ())
        tables: dict[str, dict[str, Any]] = {"dataset": {"kind": kind}}
        if kind == "scenes":
            tables["propose"] = {"annotators": list(proposers)}
        given_urls = {
            "url": ("db", app.settings.db_url),
            "crowd_url": ("crowd_db", app.settings.crowd_db_url),
        }
        if urls := {key: url for key, (option, url) in given_urls.items() if _is_to_keep(option, url)}:
            tables["database"] = urls
        result = init(app.settings, loaded, checked=checked, annotators=annotators)
        # Last, so that a failure leaves no settings of a project that does not exist.
        examples = (
            ""
            if annotators
            else examples_of_settings(
                min(len(loaded.data.images), len(loaded.data.captions)), loaded.data.sides
            )
        )
        ensure_config(target, loaded.data.name, app.settings.seed, tables, examples)
    app.finish(result)


def _is_to_keep(option: str, url: str) -> bool:
    """Whether it is a server's URL given as an option, which later commands have to find, and holds no password."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    names = [parameter.name for parameter in typed(click.get_current_context())]
    if option not in names or parsed.get_backend_name() == "sqlite":
        return False
    return not (parsed.password or "password" in parsed.query)


def _refuse_unused(kind: str) -> None:
    """UsageError for an option that data sets of this kind have no use for."""
    for parameter in typed(click.get_current_context()):
        name = str(parameter.name)
        if kind not in USED_BY.get(name, (kind,)):
            *first, last = USED_BY[name]
            kinds = f"{', '.join(first)} and {last}" if first else last
            then = "say how many with --n-images" if (kind, name) == ("scenes", "images") else "leave it out"
            raise UsageError(
                f"a data set of the kind {kind} has no use for {parameter.opts[0]}, which is for {kinds}; {then}"
            )


@click.command("demo", cls=Command)
@click.argument("folder", required=False, type=PLACE)
@click.option(
    "--n-images",
    type=click.IntRange(min=10),
    help="Number of images [default: 300; with --crisscross 40].",
)
@click.option(
    "--workers",
    "population",
    metavar="SPEC",
    help="Kinds of scripted workers with their shares [default: careful:0.8,random:0.2; with --crisscross "
    "careful:0.7,hasty:0.1,one-number:0.1,random:0.1].",
)
@click.option("--kind", type=click.Choice(WORLDS), help="Kind of the items [default: images].")
@click.option(
    "--crisscross",
    is_flag=True,
    help="Rate graded similarity, within and across sides, instead of asking for matches.",
)
@common
def demo(app: App, folder: Path | None, crisscross: bool, **asked: Any) -> None:
    """Run the whole loop in FOLDER (default: mitl-demo): data, annotators, scripted workers, release, report.

    Only the workers are scripted: the crowd server runs inside the command and is called over HTTP.
    --kind walks a world of texts, sounds, videos or composed queries (default folder: mitl-KIND).
    With --crisscross (default folder: mitl-crisscross) they rate from 0 to 5 how like two items are, and the end
    compares their ratings with the known truth.
    """
    from mitl.settings import load
    from mitl.stages.crisscross_demo import crisscross_demo
    from mitl.stages.demo import demo

    options = click.get_current_context().params
    if options["db"] or options["crowd_db"]:
        raise UsageError("the demo keeps its databases in its own folder; leave out --db and --crowd-db")
    other = "-crisscross" if crisscross else f"-{asked['kind']}" if asked["kind"] else "-demo"
    target = (folder or options["project"] or Path(f"mitl{other}")).absolute()
    if crisscross and asked["kind"]:
        raise UsageError("--crisscross compares pictures and captions; leave out --kind")
    if options["project"] and options["project"].absolute() != target:
        raise UsageError(f"both --project {options['project']} and {folder} are given; give one of them")
    say = None if app.quiet else click.echo
    walk = crisscross_demo if crisscross else demo
    app.finish(
        walk(
            target,
            **{name: value for name, value in asked.items() if value is not None},
            seed=load(target, seed=options["seed"]).seed,
            say=say,
            progress=app.progress,
        )
    )


@printed_by("completion")
class CompletionCounts(TypedDict):
    """What a shell needs to complete commands."""

    shell: Annotated[str, "the shell"]
    script: Annotated[str, "the lines that it is to read"]


VARIABLE = "_MITL_COMPLETE"
"""What the shell sets when it asks for completions; click answers it before any command runs."""

_WHERE = {
    "bash": 'eval "$(mitl completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(mitl completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "mitl completion fish > ~/.config/fish/completions/mitl.fish",
}


@click.command("completion", cls=Command, epilog="  \n".join(["\b", *_WHERE.values()]))
@click.argument("shell", type=click.Choice(list(_WHERE)))
@common
def completion(app: App, shell: str) -> None:
    """Print the script that makes SHELL complete mitl's commands and options."""
    from mitl.records import StageResult

    completion_class = get_completion_class(shell)
    assert completion_class is not None, shell
    # click's own ``source`` asks the installed bash for its version; the lines themselves do not depend on it.
    completion = completion_class(click.Group("mitl"), {}, "mitl", VARIABLE)
    script = completion.source_template % completion.source_vars()
    counts: CompletionCounts = {"shell": shell, "script": script}
    app.finish(StageResult(counts=counts, lines=tuple(script.splitlines())))
