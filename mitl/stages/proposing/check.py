"""Checking a weights file: what it is, and whether it is the network that it is taken for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from annotators import registry
from annotators.published import KS, Published, default_row
from annotators.released import RELEASED
from mitl.errors import AnnotatorError
from mitl.records import StageResult, Table, Verdict
from mitl.settings import Settings

if TYPE_CHECKING:
    from annotators.checkpoints.checkpoint import Checkpoint, Examination

_SHOWN = 8
"""Keys of one fault that are listed for people; ``--json`` has all."""


def check(settings: Settings, name: str, file: Path, *, vocabulary: Path | None = None) -> Verdict:
    """Hold a weights file against the network that ``name`` stands for, and a vocabulary against the file.

    Raises:
        AnnotatorError: the name stands for none of the five networks; a file is missing, cut off or of no known form.
    """
    network = _network(settings, name)
    examination = registry.examine(network, file)
    found = _Findings(examination, *_held_by(Path(examination.path)))
    if vocabulary is not None:
        found = _with_vocabulary(found, vocabulary)
    fits_as = () if examination.fits else tuple(_others(network, file))
    published = None
    if found.examination.fits:
        published = default_row(network, examination.settings, file_name=file.name)
    result = StageResult(
        counts=_counts(found, fits_as, published),
        paths={"file": str(file)},
        warnings=found.warnings,
        tables=tuple(_tables(found, published)),
        lines=tuple(_faults(found.examination)),
        next=_next(settings, name, file) if found.examination.fits else "",
    )
    return Verdict(result, _refusal(found.examination, fits_as))


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
    if network is None and name in registry.BUILDERS:
        network = name.removesuffix("-mini")
    if network is None:
        raise AnnotatorError(
            f"{name!r} is no network whose weights can be checked; known: {', '.join(RELEASED)}, and every name whose "
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


def _with_vocabulary(found: _Findings, path: Path) -> _Findings:
    """The findings with what is to be said of the vocabulary beside these weights."""
    from annotators.inputs.vocabularies import RELEASED as LISTS
    from annotators.inputs.vocabularies import Vocabulary, read_vocabulary

    words = found.examination.settings.get("words")
    if not isinstance(words, int):
        raise AnnotatorError(
            f"{found.examination.network!r} has no vocabulary of words; leave --vocabulary out"
        )
    known = read_vocabulary(path)
    problems: list[str] = []
    held = found.checkpoint.values.get("word2idx")
    if len(known) != words:
        problems.append(
            f"the vocabulary {str(path)!r} has {known.description}, but the weights were trained with {words:,} words"
        )
    elif isinstance(held, dict) and Vocabulary.from_word2idx(held).words != known.words:
        problems.append(f"the vocabulary {str(path)!r} has other words than the weights file's own word2idx")
    odd = not problems and known.fingerprint not in LISTS
    warning = f"{str(path)!r} is none of the released vocabularies; in another order its words are noise"
    return replace(
        found,
        examination=replace(found.examination, problems=(*found.examination.problems, *problems)),
        vocabulary=known.description,
        warnings=(warning,) if odd else (),
    )


def _others(network: str, file: Path) -> Iterator[str]:
    """The other networks that this file does fit."""
    for other in RELEASED:
        # A network that cannot even say what it expects of this file is none that it fits.
        with suppress(AnnotatorError):
            if other != network and registry.examine(other, file).fits:
                yield other


def _refusal(examination: Examination, fits_as: Sequence[str]) -> str | None:
    if examination.fits:
        return None
    instead = f"; it fits {' and '.join(map(repr, fits_as))}" if fits_as else ""
    faults = list(_faults(examination, shown=1))
    return f"{examination.path!r} does not fit {examination.network!r}: {faults[0]}{instead}"


def _faults(examination: Examination, shown: int = _SHOWN) -> Iterator[str]:
    """What is wrong and what was left aside, a line each."""
    for what in ("missing", "unexpected", "misshapen"):
        keys = getattr(examination, what)
        if keys:
            more = f" and {len(keys) - shown:,} more" if len(keys) > shown else ""
            yield f"{len(keys):,} {what}: {', '.join(keys[:shown])}{more}"
    yield from examination.problems
    if shown > 1:
        for said, reasons in (("not needed", examination.ignored), ("absent", examination.absent)):
            by_reason: dict[str, list[str]] = {}
            for key, why in reasons.items():
                by_reason.setdefault(why, []).append(key)
            for why, keys in by_reason.items():
                more = f" and {len(keys) - 1:,} more" if len(keys) > 1 else ""
                yield f"{len(keys):,} {said} ({why}): {keys[0]}{more}"


def _tables(found: _Findings, published: Published | None) -> Iterator[Table]:
    examination = found.examination
    expected = examination.matched + len(examination.missing) + len(examination.misshapen)
    rows = [
        ("is", examination.what),
        ("layout", examination.layout),
        ("numbers", f"{found.numbers:,} in {len(found.checkpoint.tensors):,} tensors"),
        ("keys", f"{examination.matched:,} of {expected:,} match"),
    ]
    if found.vocabulary:
        rows.append(("vocabulary", found.vocabulary))
    yield Table(examination.path, ("about", "found"), tuple(rows))
    if published is not None:
        columns = ("COCO", "direction", *(f"R@{k}" for k in KS))
        yield Table(f"published for {published.what}", columns, tuple(_figures(published)))


def _figures(published: Published) -> Iterator[tuple[object, ...]]:
    for protocol, by_direction in published.protocols().items():
        for direction, recalls in by_direction.items():
            yield protocol, direction.value, *(None if r is None else f"{r:.2f}" for r in recalls)


def _counts(found: _Findings, fits_as: Sequence[str], published: Published | None) -> dict[str, object]:
    examination = found.examination
    return {
        "network": examination.network,
        "fits": examination.fits,
        "fits_as": list(fits_as),
        "layout": examination.layout,
        "what": examination.what,
        "numbers": found.numbers,
        "settings": dict(examination.settings),
        "matched": examination.matched,
        "missing": list(examination.missing),
        "unexpected": list(examination.unexpected),
        "misshapen": list(examination.misshapen),
        "ignored": dict(examination.ignored),
        "absent": dict(examination.absent),
        "problems": list(examination.problems),
        "vocabulary": found.vocabulary or None,
        "published": None if published is None else published.row,
        "published_recall": {} if published is None else published.recalls(),
    }
