"""The annotators that there are, and checking a weights file: whether it is the network that it is taken for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

from annotators import registry
from annotators.catalog import KS, MINIS, NETWORKS, Published, default_row
from mitl.errors import AnnotatorError
from mitl.records import StageResult, Table, Verdict
from mitl.records.results import listed, printed_by
from mitl.settings import Settings
from mitl.stages.proposing.trained import trained_rows, with_trained

if TYPE_CHECKING:
    from annotators.checkpoints.checkpoint import Checkpoint, Examination

_SHOWN = 8
"""Keys of one fault that are listed for people; ``--json`` has all."""


@printed_by("annotators")
class AnnotatorsCounts(TypedDict):
    """What annotators there are."""

    known: Annotated[int, "names and forms of names"]
    ready: Annotated[int, "those that could propose as things are: packages, settings and files are there"]
    annotators: Annotated[
        list[dict[str, object]], "each of them: name, ready, what, needs, missing, download"
    ]


def list_annotators(settings: Settings) -> StageResult:
    """What each known annotator is, what it needs and lacks, and what to download."""
    learnt = {row.name: row for row in trained_rows(settings)}
    described = registry.describe(with_trained(settings).annotator_config, settings.project)
    what = {line.name: line.what for line in described}
    for row in learnt.values():  # oldest first: what learnt from another one is what that is
        what[row.name] = what.get(row.base, what.get(row.name, ""))
    listed = [
        replace(line, what=what[line.name], needs=f"learnt here from {learnt[line.name].base}")
        if line.name in learnt
        else line
        for line in described
    ]
    rows = tuple(
        (line.name, "yes" if line.ready else f"lacks {', '.join(line.missing)}", line.what, line.needs)
        for line in listed
    )
    lines = ["to download (settings go to mitl.toml; docs/annotators.md says more):"]
    for line in listed:
        for place, text in enumerate(line.download):
            lines.append(f"  {line.name if place == 0 else '':<5} {text}")
    counts = AnnotatorsCounts(
        known=len(listed),
        ready=sum(line.ready for line in listed),
        annotators=[{"name": line.name, "ready": line.ready, **asdict(line)} for line in listed],
    )
    table = Table("", ("name", "ready", "what it is", "what it needs"), rows)
    return StageResult(counts=counts, tables=(table,), lines=tuple(lines))


@printed_by("annotators check")
class WeightsCounts(TypedDict):
    """What a weights file is."""

    network: Annotated[str, "the network that the file was compared with"]
    fits: Annotated[bool, "whether it can be used as it is"]
    fits_as: Annotated[list[str], "the other network that it does fit, where it does not fit this one"]
    layout: Annotated[str, "how the file is built, outermost first"]
    what: Annotated[str, "what it holds, in a line"]
    numbers: Annotated[int, "weights, biases and running statistics"]
    settings: Annotated[dict[str, object], "what was read off the file: K, words, sizes"]
    matched: Annotated[int, "keys of the right name and shape"]
    missing: Annotated[list[str], "keys that the network needs and the file lacks"]
    unexpected: Annotated[list[str], "keys that the network does not know"]
    misshapen: Annotated[list[str], "keys of another shape, with both shapes"]
    ignored: Annotated[dict[str, str], "keys that are known and not needed → the reason"]
    absent: Annotated[dict[str, str], "keys of the network that the file need not have → the reason"]
    problems: Annotated[list[str], "whatever else is wrong, a sentence each"]
    vocabulary: Annotated[
        str | None, "how many words it has and which list it is; null without `--vocabulary`"
    ]
    published: Annotated[
        str | None, "row of the published figures; null where nothing was published of such a file"
    ]
    published_recall: Annotated[
        Mapping[str, Mapping[str, Mapping[str, float | None]]],
        "protocol (5K, 1K) → direction → R@K → percent",
    ]


@printed_by("annotators check", key="paths")
class WeightsPaths(TypedDict):
    """Its files."""

    file: Annotated[str, "the file that was checked"]


def check(settings: Settings, name: str, file: Path, *, vocabulary: Path | None = None) -> Verdict:
    """Hold a weights file against the network that ``name`` stands for, and a vocabulary against the file.

    Raises:
        AnnotatorError: the name stands for none of the five networks; a file is missing, cut off or of no known form.
    """
    settings = with_trained(settings, [name])
    network = _network(settings, name)
    examination = registry.examine(network, file)
    findings = _Findings(examination, *_held_by(Path(examination.path)))
    if vocabulary is not None:
        findings = _with_vocabulary(findings, vocabulary)
    fits_as = () if examination.fits else _others(network, file)
    published = None
    if findings.examination.fits:
        published = default_row(network, examination.settings, file_name=file.name)
    result = StageResult(
        counts=_counts(findings, fits_as, published),
        paths=WeightsPaths(file=str(file)),
        warnings=findings.warnings,
        tables=tuple(_tables(findings, published)),
        lines=tuple(_faults(findings.examination)),
        next=_next(settings, name, file) if findings.examination.fits else "",
    )
    return Verdict(result, _refusal(findings.examination, fits_as))


@dataclass(frozen=True, slots=True)
class _Findings:
    examination: Examination
    checkpoint: Checkpoint
    numbers: int
    """Weights and biases, counters left out."""
    vocabulary: str = ""
    warnings: tuple[str, ...] = ()


def _network(settings: Settings, name: str) -> str:
    network = registry.network_of(name, settings.annotator_config.get(name, {}))
    if network is None and name in MINIS:
        network = MINIS[name].network
    if network is None:
        raise AnnotatorError(
            f"{name!r} is not a network whose weights can be checked; "
            f"known: {', '.join(NETWORKS)}, and every name whose "
            "table in mitl.toml says network = one of these"
        )
    return network


def _next(settings: Settings, name: str, file: Path) -> str:
    if "weights" in settings.annotator_config.get(name, {}):
        return f"mitl annotators verify {name}"
    return f"write weights = {str(file)!r} under [annotators.{name}] of mitl.toml"


def _held_by(file: Path) -> tuple[Checkpoint, int]:
    from annotators.checkpoints.checkpoint import read_checkpoint

    checkpoint = read_checkpoint(file)
    return checkpoint, sum(t.numel() for t in checkpoint.tensors.values() if t.is_floating_point())


def _with_vocabulary(findings: _Findings, path: Path) -> _Findings:
    """The findings with what is to be said of the vocabulary beside these weights."""
    from annotators.inputs.vocabularies import RELEASED as LISTS
    from annotators.inputs.vocabularies import Vocabulary, read_vocabulary

    words = findings.examination.settings.get("words")
    if not isinstance(words, int):
        raise AnnotatorError(
            f"{findings.examination.network!r} has no vocabulary of words; leave --vocabulary out"
        )
    vocabulary = read_vocabulary(path)
    problems: list[str] = []
    held = findings.checkpoint.values.get("word2idx")
    if len(vocabulary) != words:
        problems.append(
            f"the vocabulary {str(path)!r} has {vocabulary.description}, but the weights were trained with "
            f"{words:,} words"
        )
    elif isinstance(held, dict) and Vocabulary.from_word2idx(held).words != vocabulary.words:
        problems.append(f"the vocabulary {str(path)!r} has other words than the weights file's own word2idx")
    odd = not problems and vocabulary.fingerprint not in LISTS
    warning = f"{str(path)!r} is none of the released vocabularies; in another order its words are noise"
    return replace(
        findings,
        examination=replace(findings.examination, problems=(*findings.examination.problems, *problems)),
        vocabulary=vocabulary.description,
        warnings=(warning,) if odd else (),
    )


def _others(network: str, file: Path) -> tuple[str, ...]:
    """The other network that this file does fit; the rest, of which some take seconds to import, are not asked."""
    for other in NETWORKS:
        # A network that cannot even say what it expects of this file is none that it fits.
        with suppress(AnnotatorError):
            if other != network and registry.examine(other, file).fits:
                return (other,)
    return ()


def _refusal(examination: Examination, fits_as: Sequence[str]) -> str | None:
    if examination.fits:
        return None
    instead = f"; it fits {fits_as[0]!r}" if fits_as else ""
    faults = list(_faults(examination, shown=1))
    return f"{examination.path!r} does not fit {examination.network!r}: {faults[0]}{instead}"


def _faults(examination: Examination, shown: int = _SHOWN) -> Iterator[str]:
    """What is wrong and what was left aside, a line each."""
    for what in ("missing", "unexpected", "misshapen"):
        keys = getattr(examination, what)
        if keys:
            yield f"{len(keys):,} {what}: {listed(keys, shown)}"
    yield from examination.problems
    if shown > 1:
        for said, reasons in (("not needed", examination.ignored), ("absent", examination.absent)):
            by_reason: dict[str, list[str]] = {}
            for key, why in reasons.items():
                by_reason.setdefault(why, []).append(key)
            for why, keys in by_reason.items():
                yield f"{len(keys):,} {said} ({why}): {listed(keys, 1)}"


def _tables(findings: _Findings, published: Published | None) -> Iterator[Table]:
    examination = findings.examination
    expected = examination.matched + len(examination.missing) + len(examination.misshapen)
    rows = [
        ("is", examination.what),
        ("layout", examination.layout),
        ("numbers", f"{findings.numbers:,} in {len(findings.checkpoint.tensors):,} tensors"),
        ("keys", f"{examination.matched:,} of {expected:,} match"),
    ]
    if findings.vocabulary:
        rows.append(("vocabulary", findings.vocabulary))
    yield Table(examination.path, ("about", "found"), tuple(rows))
    if published is not None:
        columns = ("COCO", "direction", *(f"R@{k}" for k in KS))
        yield Table(f"published for {published.what}", columns, tuple(_figures(published)))


def _figures(published: Published) -> Iterator[tuple[object, ...]]:
    for protocol, by_direction in published.protocols().items():
        for direction, recalls in by_direction.items():
            yield protocol, direction.value, *(None if r is None else f"{r:.2f}" for r in recalls)


def _counts(findings: _Findings, fits_as: Sequence[str], published: Published | None) -> WeightsCounts:
    examination = findings.examination
    return {
        "network": examination.network,
        "fits": examination.fits,
        "fits_as": list(fits_as),
        "layout": examination.layout,
        "what": examination.what,
        "numbers": findings.numbers,
        "settings": dict(examination.settings),
        "matched": examination.matched,
        "missing": list(examination.missing),
        "unexpected": list(examination.unexpected),
        "misshapen": list(examination.misshapen),
        "ignored": dict(examination.ignored),
        "absent": dict(examination.absent),
        "problems": list(examination.problems),
        "vocabulary": findings.vocabulary or None,
        "published": None if published is None else published.row,
        "published_recall": {} if published is None else published.recalls(),
    }
