"""Planning: what proposing takes in operations, bytes, time and money, on this and on other hardware."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import annotators
from annotators import registry
from annotators.base import Annotator
from annotators.catalog import NETWORKS, TEXT_MODELS
from annotators.costs import RANKINGS, Costs, embeddings, pivot
from mitl.core.pricing import format_dollars
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.errors import AnnotatorError, UsageError
from mitl.records import StageResult, Table, several
from mitl.retrieval.estimates import (
    NAMED,
    AnnotatorPlan,
    ComputeEstimate,
    Hardware,
    SearchWorkload,
    estimate,
    here,
    total,
)
from mitl.settings import Settings
from mitl.stages.proposing.computing import SHORTLIST, split_scope
from mitl.stages.proposing.propose import ProposeCounts
from mitl.stages.proposing.trained import with_trained

HERE = "here"
HARDWARE = (HERE, *NAMED)
_LOW_PRECISIONS = ("bfloat16", "float16")
_LARGEST_HEADER = 100 << 20


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """What `mitl propose --estimate` was asked."""

    images: int | None = None
    """In place of the project's."""
    captions: int | None = None
    image_queries: int | None = None
    """How many of them search; all by default."""
    caption_queries: int | None = None
    hardware: tuple[str, ...] = (HERE, "h200")
    machines: int = 1
    cents_per_hour: int | None = None
    """Of one machine."""


def estimate_proposing(settings: Settings, chosen: Sequence[str], wanted: EstimateOptions) -> StageResult:
    """FLOP, bytes, time and money of ranking with these annotators (the five networks by default).

    Nothing is ranked and nothing is written.

    Raises:
        AnnotatorError: of none of the annotators the costs are known.
        UsageError: unknown hardware, or more queries than items.
    """
    unknown = [name for name in wanted.hardware if name not in HARDWARE]
    if unknown:
        raise UsageError(f"no hardware called {unknown[0]!r}; known: {', '.join(HARDWARE)}")
    names = list(dict.fromkeys(chosen or NETWORKS))
    settings = with_trained(settings, names)
    plans = {name: plan for name in names if (plan := plan_of(settings, name, names)) is not None}
    if not plans:
        raise AnnotatorError(
            f"costs are known of the networks {', '.join(NETWORKS)}, of pivots, and of embeddings and rankings from "
            f"files, but not of {', '.join(map(repr, names))}; name one of them with --annotator"
        )
    work = _workload(settings, wanted)
    machines = [here(weights_files(settings)) if name == HERE else NAMED[name] for name in wanted.hardware]
    price, others = wanted.cents_per_hour, _alternatives(settings, plans)
    estimates = [
        _OnHardware(
            machine,
            *(
                {
                    name: estimate(plan, work, machine, machines=wanted.machines, cents_per_hour=price)
                    for name, plan in of.items()
                }
                for of in (plans, others)
            ),
        )
        for machine in machines
    ]
    warnings = tuple(_unknown(settings, name, names, work) for name in names if name not in plans)
    return _result(work, wanted, estimates, warnings)


@dataclass(frozen=True, slots=True)
class _OnHardware:
    """All annotators on one hardware, and what some of them would take if they were run otherwise."""

    hardware: Hardware
    parts: Mapping[str, ComputeEstimate]
    alternatives: Mapping[str, ComputeEstimate]


def _unknown(settings: Settings, name: str, names: Sequence[str], work: SearchWorkload) -> str:
    """What is said of an annotator whose costs are not known; of a judge, how often it is asked."""
    config = settings.annotator_config.get(name, {})
    _, scope = split_scope(name, config)
    if scope is None or "chat" not in config:
        return f"nothing is known of the costs of annotator {name!r}, so it is left out"
    pairs = work.images * work.captions
    each = scope.candidates(len(names))
    if each is not None and scope.recall is None:
        ways = (work.image_queries, work.captions), (work.caption_queries, work.images)
        listed = sum(queries * min(each, gallery) for queries, gallery in ways)
        audited = sum(
            min(scope.audit_queries, n) * min(scope.audit_items or gallery, gallery) for n, gallery in ways
        )
        pairs = min(pairs, listed + audited)
    return (
        f"annotator {name!r} is asked about {several(pairs, 'pair')} at most, with two calls each; what these cost is "
        "not known here, and its setting 'most_pairs' limits them"
    )


def _alternatives(settings: Settings, plans: Mapping[str, AnnotatorPlan]) -> dict[str, AnnotatorPlan]:
    """Cheaper ways to score pairs one by one, for annotators about which nothing is set yet."""
    alternatives = {}
    for name, plan in plans.items():
        if plan.costs.vectors or name in settings.annotator_config:
            continue
        low = replace(plan, low_precision=True)
        alternatives[f"{name} in bfloat16"] = low
        candidates = SHORTLIST * max(1, len(plans) - 1)
        alternatives[f"{name} in bfloat16, shortlist {SHORTLIST}"] = replace(low, shortlist=candidates)
    return alternatives


def _workload(settings: Settings, wanted: EstimateOptions) -> SearchWorkload:
    images, captions = wanted.images, wanted.captions
    if images is None or captions is None:
        with open_database(settings.db_url, read_only=True) as session:
            dataset = item_store.dataset(session)
        images, captions = images or dataset.n_images, captions or dataset.n_captions
    image_queries = images if wanted.image_queries is None else min(wanted.image_queries, images)
    caption_queries = captions if wanted.caption_queries is None else min(wanted.caption_queries, captions)
    return SearchWorkload(images, captions, image_queries, caption_queries)


def plan_of(settings: Settings, name: str, names: Sequence[str]) -> AnnotatorPlan | None:
    """An annotator's costs by its sizes, beside those of ``names``; None where they are not known."""
    config, scope = split_scope(name, settings.annotator_config.get(name, {}))
    made_elsewhere = _from_files(settings, name, config)
    if made_elsewhere is not None:
        return AnnotatorPlan(made_elsewhere)
    if "transformers" in config:
        return None
    network = registry.network_of(name, config)
    files = files_of(settings, name)
    costs = next((stated for file in files if (stated := _stated(file)) is not None), None)
    if costs is None and network is not None:
        costs = NETWORKS[network].config().costs()
    if costs is None:
        return None
    per_query = None if scope is None else scope.candidates(len(names))
    low = str(config.get("precision", "float32")) in _LOW_PRECISIONS
    return AnnotatorPlan(costs.times(len(files)) if len(files) > 1 else costs, low, per_query)


def _from_files(settings: Settings, name: str, config: Mapping[str, Any]) -> Costs | None:
    """What an annotator costs whose encodings or rankings are in files, or whose images are texts; None for others."""
    if "rankings" in config:
        return RANKINGS
    if "embeddings" in config:
        source = registry.build(name, config, folder=settings.project)
        assert isinstance(source, Annotator), "embeddings make an annotator"
        shape = source.encode_images(()).arrays["embedding"].shape  # (0, D) or (0, K, D)
        return embeddings(shape[-1], shape[1] if len(shape) == 3 else 1)
    _, by_name = registry.pivot_parts(name) or (None, None)
    text_model = config.get("text_model", by_name)
    return pivot(text_model) if text_model in TEXT_MODELS else None


def files_of(settings: Settings, name: str) -> list[Path]:
    """An annotator's weights: those that are set, or those that come with the package."""
    weights = settings.annotator_config.get(name, {}).get("weights")
    if weights is None:
        return [Path(annotators.__file__).parent / "weights" / f"{name}.safetensors"]
    listed = weights if isinstance(weights, list) else [weights]
    return [settings.project / Path(str(file)).expanduser() for file in listed]


def weights_files(settings: Settings) -> Iterator[Path]:
    """Files of the project that a disk can be measured with."""
    for name in settings.annotator_config:
        yield from files_of(settings, name)


def _stated(path: Path) -> Costs | None:
    """The costs at the sizes that a weights file of ours states in its header; None for any other file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            about = json.loads(file.read(length) if length < _LARGEST_HEADER else b"")["__metadata__"]
        return NETWORKS[str(about["network"])].config.from_json(about["config"]).costs()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        return None


def _result(
    work: SearchWorkload, wanted: EstimateOptions, found: Sequence[_OnHardware], warnings: tuple[str, ...]
) -> StageResult:
    counts: ProposeCounts = {
        "images": work.images,
        "captions": work.captions,
        "image_queries": work.image_queries,
        "caption_queries": work.caption_queries,
        "machines": wanted.machines,
        "estimates": {
            on.hardware.name: {
                "hardware": asdict(on.hardware),
                "annotators": {name: _numbers(part) for name, part in on.parts.items()},
                "total": _numbers(total(on.parts)),
                "alternatives": {name: _numbers(part) for name, part in on.alternatives.items()},
            }
            for on in found
        },
    }
    lines = (
        f"for {work.images:,} images and {work.captions:,} captions, of which {work.image_queries:,} and "
        f"{work.caption_queries:,} search; a plan from rates, not a promise",
        "not counted: making region features for vsrn, and fetching data to other machines",
    )
    tables = tuple(_table(on, wanted.machines) for on in found)
    return StageResult(counts=counts, tables=tables, lines=lines, warnings=warnings, next="mitl propose")


def _numbers(part: ComputeEstimate) -> dict[str, object]:
    return {**asdict(part), "cents": None if part.cents is None else round(part.cents)}


def _table(on: _OnHardware, machines: int) -> Table:
    rates = on.hardware
    title = (
        f"{rates.name} ({rates.source}): {scaled(rates.float32, 'FLOP/s')} float32, {scaled(rates.low, 'FLOP/s')} "
        f"low precision, {scaled(rates.memory, 'B/s')} memory, {scaled(rates.disk, 'B/s')} disk, "
        f"{rates.pictures:,.0f} pictures/s; reached by networks {rates.network_share:.0%}, "
        f"by search {rates.search_share:.0%}"
    )
    if machines > 1:
        title += f"; {machines:,} machines"
    rows = [(name, *_cells(part)) for name, part in on.parts.items()]
    if len(rows) > 1:
        rows.append(("all", *_cells(total(on.parts))))
    rows += [(f"or {name}", *_cells(part)) for name, part in on.alternatives.items()]
    return Table(
        title, ("annotator", "encode", "compare", "pairs", "read", "kept", "time", "cost"), tuple(rows)
    )


def _cells(part: ComputeEstimate) -> tuple[object, ...]:
    return (
        scaled(part.encode_flop, "FLOP"),
        scaled(part.compare_flop, "FLOP"),
        part.pairs,
        scaled(part.read_bytes, "B"),
        scaled(part.kept_bytes, "B"),
        duration(part.seconds),
        None if part.cents is None else format_dollars(round(part.cents)),
    )


def scaled(value: float, unit: str) -> str:
    """A number with a decimal prefix: 2.8 ZFLOP."""
    for prefix in ("", "k", "M", "G", "T", "P", "E", "Z"):
        if value < 999.5:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:,.0f} Y{unit}"


def duration(seconds: float) -> str:
    """A time with its two largest units: 2 d 3 h."""
    if seconds < 1:
        return "under 1 s"
    for name, length, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            rounded = round(seconds / part)
            whole, rest = divmod(rounded, length // part)
            return f"{whole:,} {name} {rest} {below}" if rest else f"{whole:,} {name}"
    return f"{seconds:.0f} s"
