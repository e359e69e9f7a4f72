"""Making a project: its folder, its settings file, its database with images and captions."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from annotators.catalog import rehearsal
from mitl.core.whole_files import nothing_on_a_full_disk, refuse_within
from mitl.datasets.assembling import content_hash, require_same
from mitl.datasets.checking import Checked
from mitl.db.engine import parse_url
from mitl.db.session import open_database
from mitl.db.store import hits, items, proposals
from mitl.proposals.sampling import low_depth
from mitl.records import ImageItem, Rating, RetrievalSet, StageResult, several
from mitl.records.forms import IMAGES, SET_FORMS
from mitl.records.items import counted
from mitl.records.results import printed_by
from mitl.settings import CONFIG_FILE, DEPTH, TOP_K, WORLD_FOLDER, Settings, write_config
from mitl.stages.setup.loading import Loaded, overview


@printed_by("init")
class InitCounts(TypedDict):
    """What loading a data set counts."""

    images: Annotated[
        int, "images loaded; documents, sounds or videos of a set of those, here and in all that follows"
    ]
    captions: Annotated[int, "captions loaded; of texts and of composed queries the queries"]
    images_placed: Annotated[int, "images whose file or address this call made known"]
    ratings: Annotated[int, "human ratings that this call added"]
    exclusions: Annotated[int, "exclusion list entries that this call added"]
    pictures: Annotated[
        dict[str, int] | None,
        "files that are missing, unreadable, silent, repeated (byte for byte) or animated; null without --check-items",
    ]


@printed_by("init", key="paths")
class InitPaths(TypedDict):
    """Where the project is."""

    project: Annotated[str, "the project's folder"]
    config: Annotated[str, "its mitl.toml"]


def make_project_id(name: str) -> str:
    """A name that fits into annotations and tokens; its random tail keeps two projects apart."""
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:20] or "project"
    return f"{stem}-{secrets.token_hex(3)}"


def ensure_config(
    folder: Path, name: str, seed: int, tables: Mapping[str, Mapping[str, Any]], comments: str = ""
) -> bool:
    """Write ``mitl.toml`` where there is none; returns whether it was written."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CONFIG_FILE).exists():
        return False
    about = {"name": name, "id": make_project_id(name), "seed": seed}
    write_config(folder, {"project": about, **tables}, comments)
    return True


@contextmanager
def whole_project(settings: Settings) -> Iterator[None]:
    """Leave nothing of a new project where the disk is full before all of it is there.

    Raises:
        ReleaseError: it would lie in a release.
    """
    refuse_within(settings.project / CONFIG_FILE)
    url = parse_url(settings.db_url)
    database = url.database if url.get_backend_name() == "sqlite" else None
    beside = ("", "-wal", "-shm", "-journal") if database else ()
    files = [Path(f"{database}{end}") for end in beside]
    with nothing_on_a_full_disk([settings.project / CONFIG_FILE, *files, settings.project / WORLD_FOLDER]):
        yield


def init(
    settings: Settings,
    loaded: Loaded,
    *,
    annotators: Sequence[str] = (),
    checked: Checked | None = None,
) -> StageResult:
    """Load a data set into the project's database, once.

    Args:
        annotators: those that propose unless others are asked for; they decide what is said to come next.
        checked: what looking at every picture found.

    Raises:
        StoreError: another data set is loaded here already.
    """
    data, ratings, exclusions = loaded.data, loaded.ratings, loaded.exclusions
    warnings = (*_left_out(data, ratings), *(checked.lines if checked else ()))
    with open_database(settings.db_url, create=True) as session:
        stored = items.find_dataset(session)
        if stored is not None:
            require_same(stored.content_sha256, data)
            # What this call names and the project lacks.
            added = {
                "images_placed": items.update_places(session, stored.id, data),
                "ratings": items.add_ratings(session, stored.id, ratings),
                "exclusions": items.add_exclusions(session, stored.id, exclusions),
            }
            items.add_rating_file(session, loaded.rated_in)
            has_begun = bool(proposals.runs(session) or hits.batches(session))
            images = items.images(session, stored.id, settings.project)
            session.commit()
            if checked is None:
                warnings += _unplaced(data, images)
            step = "mitl status, which says what comes next" if has_begun else _step(annotators, data, images)
            return _loaded_before(settings, stored, added, warnings, step, checked)
        dataset_id = items.add_dataset(session, data, content_hash(data))
        n_ratings = items.add_ratings(session, dataset_id, ratings)
        items.add_rating_file(session, loaded.rated_in)
        n_exclusions = items.add_exclusions(session, dataset_id, exclusions)
        hits.open_round(session, dataset_id, None, dt.datetime.now(dt.UTC))
        images = items.images(session, dataset_id, settings.project)
        session.commit()
    with_file = sum(image.path is not None for image in images)
    counts: InitCounts = {
        "images": len(data.images),
        "captions": len(data.captions),
        "images_placed": sum(image.file is not None or image.url is not None for image in data.images),
        "ratings": n_ratings,
        "exclusions": n_exclusions,
        "pictures": checked.faults if checked else None,
    }
    return StageResult(
        counts=counts,
        paths=_paths(settings),
        warnings=(*warnings, *(() if checked else _unplaced(data, images))),
        tables=overview(data, checked),
        lines=(
            *loaded.told.lines,
            f"data set {data.name}: "
            + (
                counted(data.sides, len(data.images), len(data.captions))
                if data.form is not IMAGES
                else f"{several(len(data.images), 'image')} ({with_file:,} with a picture at hand), "
                f"{several(len(data.captions), 'caption')}, {several(n_ratings, 'human rating')}, "
                f"{several(n_exclusions, 'exclusion')}"
            ),
        ),
        next=_step(annotators, data, images),
    )


def _paths(settings: Settings) -> InitPaths:
    return {"project": str(settings.project), "config": str(settings.project / CONFIG_FILE)}


def _step(annotators: Sequence[str], data: RetrievalSet, images: Sequence[ImageItem]) -> str:
    at_hand = all(image.path is not None or image.texts for image in images)
    smaller_side = min(len(images), len(data.captions)) if at_hand else None
    return first_step(annotators, smaller_side, data.sides)


def first_step(annotators: Sequence[str], smaller_side: int | None, sides: tuple[str, str]) -> str:
    """What comes after loading: naming annotators if none is named, then proposing.

    Args:
        smaller_side: how many images there are, or captions if these are fewer; None where a picture is not at hand.
    """
    if annotators:
        return "mitl propose"
    named = "say who proposes, in mitl.toml, which has examples (mitl annotators lists all)"
    if smaller_side is None:
        return named
    names = " ".join(f"--annotator {name}" for name in rehearsal(sides))
    sizes = "".join(
        f" --{size.replace('_', '-')} {value}" for size, value in small_sizes(smaller_side).items()
    )
    if SET_FORMS[sides] is not IMAGES:
        return f"mitl propose {names}{sizes}"
    return (
        f"{named}; or rehearse with networks that have seen drawn scenes alone: mitl propose {names}{sizes}"
    )


def small_sizes(side: int) -> dict[str, int]:
    """Sizes of a search that leave pairs unranked, from which negative controls are drawn; none for larger sets."""
    depth = low_depth(side)
    return {"top_k": min(TOP_K, depth), "depth": depth} if depth < DEPTH else {}


_TRANSFORMERS = """# A model of transformers, by its folder or its name on the hub:
#
# [annotators.my-clip]
# transformers = "openai/clip-vit-base-patch32"
#
"""


def examples_of_settings(smaller_side: int, sides: tuple[str, str]) -> str:
    """The comments of ``mitl.toml``: who could propose, each example to be used by taking its marks away."""
    sizes = "".join(f"# {size} = {value}\n" for size, value in small_sizes(smaller_side).items())
    left, right = (noun.replace(" ", "_") for noun in SET_FORMS[sides].nouns)
    form = SET_FORMS[sides]
    first, example = '"my-clip", ', _TRANSFORMERS
    if form is not IMAGES:
        first, example = "".join(f'"{name}", ' for name in rehearsal(sides)), ""
    return f"""
# Who proposes pairs: take the marks away from [propose] and from an annotator or more below. Several that differ find
# more than one. `mitl annotators` lists every kind, docs/annotators.md describes them.
#
# [propose]
# annotators = [{first}"my-vectors"]
{sizes}#
{example}# Vectors that you computed, files with the arrays `ids` and `embedding`:
#
# [annotators.my-vectors]
# embeddings = {{ {left} = "my-{left}.npz", {right} = "my-{right}.npz" }}
#
# Whom workers may ask; HIT pages and the release's datasheet show it:
#
# [crowd]
# contact = "you@example.org"
"""


def loaded_content(settings: Settings) -> str | None:
    """The hash of the data set that the project holds; None where it holds none.

    Raises:
        SettingsError: the database's URL cannot be meant.
        StoreError: the database is of another version, holds other tables or cannot be reached.
    """
    url = parse_url(settings.db_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return None
    with open_database(settings.db_url, create=True) as session:
        stored = items.find_dataset(session)
        return None if stored is None else stored.content_sha256


def _unplaced(data: RetrievalSet, images: Sequence[ImageItem]) -> tuple[str, ...]:
    """A warning about images that no page could show, while it costs nothing to mend that."""
    missing = [
        image.external_id for image in images if image.path is None and image.url is None and not image.texts
    ]
    if not missing:
        return ()
    return (
        f"{len(missing):,} of {len(images):,} {data.form.nouns[0]} have neither a file nor an address, as "
        f"{', '.join(map(repr, missing[:5]))}; workers could not see them: run the same command with --images DIR or "
        "--image-url TEMPLATE as well",
    )


def _left_out(data: RetrievalSet, ratings: Sequence[Rating]) -> tuple[str, ...]:
    images = {image.external_id for image in data.images}
    captions = {caption.external_id for caption in data.captions}
    unknown = [
        rating
        for rating in ratings
        if rating.image_external_id not in images or rating.caption_external_id not in captions
    ]
    if not unknown:
        return ()
    first = unknown[0]
    return (
        f"{len(unknown):,} of {len(ratings):,} human ratings name images or captions outside the data set, as image "
        f"{first.image_external_id} with caption {first.caption_external_id}; they were left out",
    )


def _loaded_before(
    settings: Settings,
    found: items.DatasetRow,
    added: dict[str, int],
    warnings: tuple[str, ...],
    step: str,
    checked: Checked | None,
) -> StageResult:
    counts: InitCounts = {
        "images": found.n_images,
        "captions": found.n_captions,
        "images_placed": added["images_placed"],
        "ratings": added["ratings"],
        "exclusions": added["exclusions"],
        "pictures": checked.faults if checked else None,
    }
    nouns = {
        "images_placed": (f"{found.pair_sides[0]}'s place", f"{found.form.nouns[0]}' places"),
        "ratings": ("rating", "ratings"),
        "exclusions": ("exclusion", "exclusions"),
    }
    new = [several(count, *nouns[what]) for what, count in added.items() if count]
    return StageResult(
        status="done" if new else "nothing_to_do",
        counts=counts,
        paths=_paths(settings),
        warnings=warnings,
        lines=(
            f"{found.name} is loaded already; added {', '.join(new)}"
            if new
            else f"nothing to do: {found.name} is loaded already",
        ),
        next=step,
    )
