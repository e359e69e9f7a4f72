"""A release checked by its own files: whether they are those that were released and give the figures they state."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mitl.audits.certificate import Certificate, certify
from mitl.audits.evidence import confirmed
from mitl.core.arrays import Flags, contains, places
from mitl.errors import AuditError, ReleaseError
from mitl.positives.audit_files import CERTIFICATE, ReleasedAudit, label_places, read_audit
from mitl.positives.certifying import matches_at_least
from mitl.positives.folders import (
    FORMAT,
    MANIFEST,
    RATINGS_FORMAT,
    checked_table,
    read_checked,
    read_manifest,
)
from mitl.positives.loading import read_release, sides_of
from mitl.positives.sheet_audit import as_told_now, certified_told, in_short
from mitl.records import Direction, PositiveSource, several
from mitl.records.audits import ANSWERS_EACH
from mitl.records.forms import SET_FORMS
from mitl.records.frames import NONE

_CLOSE = 1e-9
"""Relative; what another machine's arithmetic may change."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What a release's files say, and where they contradict each other."""

    name: str
    made_by: str
    """The version that made it."""
    manifest: Mapping[str, Any]
    """What was read once: its ``files`` are those that were checked by their hashes."""
    differences: tuple[str, ...]
    """A line each; empty where everything holds."""
    audited: int = 0
    """Audited pairs; 0 without a certificate."""
    answers: int = 0
    certificate: Certificate | None = None
    """As the released answers give it; None where there is none, or where it cannot be computed."""


def verify_release(folder: Path) -> Verification:
    """Check the hashes of a release of positives or ratings, and compute its certificate again where it has one.

    Raises:
        ReleaseError: it is not a release.
    """
    manifest = read_manifest(folder, FORMAT, RATINGS_FORMAT)
    name, files = str(manifest.get("name", folder.name)), manifest["files"]
    made_by = str(_part(manifest, "versions").get("mitl", "unknown"))
    assert isinstance(files, dict)
    if changed := tuple(_changed(folder, files)):
        return Verification(name, made_by, manifest, changed)
    audit = read_audit(folder, manifest)
    if audit is None:
        differences = []
        if "audit" in _part(manifest, "configuration") or any(name.startswith("audit") for name in files):
            differences.append(f"the release was certified, and {CERTIFICATE} is not among its files")
        if manifest["format"] == FORMAT:
            differences += _lists(folder, manifest, _table(folder, manifest, "positives", _PAIR))
            differences += _counts(folder, manifest)
        else:
            differences += _rating_counts(folder, manifest)
        differences += _described(folder, manifest)
        return Verification(name, made_by, manifest, tuple(differences))
    tables = {name: _table(folder, manifest, name, columns) for name, columns in _READ.items()}
    differences = [
        *_lists(folder, manifest, tables["positives"]),
        *_counts(folder, manifest),
        *_design(audit, manifest),
        *_answers(audit),
        *_held(audit, tables),
        *_labels(audit, tables),
    ]
    certificate = None
    try:
        certificate = _certificate(audit, tables["positives"], manifest)
    except AuditError as error:
        differences.append(f"the released answers give no certificate: {error}")
    else:
        differences += _figures(audit, certificate)
        differences += _documents(folder, manifest, audit, certificate, _by_audit(tables["positives"]))
    differences += _described(folder, manifest)
    counted = len(audit.audited), len(audit.answers)
    return Verification(name, made_by, manifest, tuple(differences), *counted, certificate)


_TEXTS = pa.list_(pa.string())
_PAIR = {"image_id": None, "caption_id": None}
_READ: Mapping[str, Mapping[str, pa.DataType | None]] = {
    "positives": {**_PAIR, "label": pa.string(), "sources": _TEXTS, "annotators": _TEXTS},
    "negatives": {**_PAIR, "label": pa.string()},
    "judgements": {**_PAIR, "label": pa.string(), "worker": pa.string(), "usable": pa.bool_()},
}
"""Table → the columns that a certificate has to do with, and their types; ids are of either kind."""


def _part(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object within another; an empty one where there is none."""
    part = told.get(name)
    return part if isinstance(part, dict) else {}


def _typed(
    folder: Path, manifest: Mapping[str, object], name: str, columns: Mapping[str, pa.DataType | None]
) -> pa.Table:
    path = folder / f"{name}.parquet"
    table = checked_table(folder, manifest, path.name, list(columns))
    try:
        schema = pa.schema(
            [pa.field(column, kind or table.schema.field(column).type) for column, kind in columns.items()]
        )
        table = table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise ReleaseError(
            f"{str(path)!r} is not such a table of a release, with the columns {', '.join(columns)}; build it again"
        ) from error
    if any(table[column].null_count for column, kind in columns.items() if kind == _TEXTS):
        raise ReleaseError(f"{str(path)!r} lacks sources of a positive; build it again")
    return table


def _table(
    folder: Path, manifest: Mapping[str, object], name: str, columns: Mapping[str, pa.DataType | None]
) -> pd.DataFrame:
    frame: pd.DataFrame = _typed(folder, manifest, name, columns).to_pandas()
    return frame


def _changed(folder: Path, files: Mapping[str, Any]) -> Iterator[str]:
    """Files that are missing, changed or not the release's; hidden ones are a download's or a desktop's own."""
    for name, entry in sorted(files.items()):
        path = folder / name
        if path.parent != folder or not isinstance(entry, dict):
            yield f"{MANIFEST} names {name!r}, which is no file of the release"
        elif not path.is_file():
            yield f"{name} is missing"
        else:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != entry.get("sha256"):
                    yield f"{name} is not the file that was released: its hash is another"
    for path in sorted(folder.iterdir()):
        if path.name not in files and path.name != MANIFEST and not path.name.startswith("."):
            yield f"{path.name} is not a file of the release"


def _described(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Where Croissant vouches for other files than the manifest, whose hash no file holds."""
    try:
        described = json.loads(read_checked(folder, manifest, "croissant.json"))["distribution"]
        vouched = {entry["@id"]: entry["sha256"] for entry in described}
    except (ValueError, KeyError, TypeError):
        yield "croissant.json does not describe the release's files"
        return
    for name in sorted(vouched):
        if vouched[name] != _part(manifest["files"], name).get("sha256"):
            yield f"croissant.json and {MANIFEST} name different hashes of {name}"


def _counts(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Where the manifest counts otherwise than the tables hold."""
    positives = _typed(folder, manifest, "positives", {"sources": _TEXTS})
    answers = _typed(folder, manifest, "judgements", _READ["judgements"])
    usable = answers.filter(pc.and_(answers["usable"], pc.is_valid(answers["label"])))
    stated = _part(manifest, "counts")

    def tally(column: pa.ChunkedArray, name: str) -> dict[str, int]:
        found = Counter({row["values"]: row["counts"] for row in column.value_counts().to_pylist()})
        return {value: found[value] for value in found.keys() | _part(stated, name).keys()}

    held = {
        "positives": positives.num_rows,
        "positives_by_source": tally(pc.list_flatten(positives["sources"]), "positives_by_source"),
        "negatives": _typed(folder, manifest, "negatives", _PAIR).num_rows,
        "judgements": answers.num_rows,
        "judgements_usable": usable.num_rows,
        "labels": tally(usable["label"], "labels"),
        "pairs_judged": usable.group_by([*_PAIR]).aggregate([]).num_rows,
        "workers": pc.count_distinct(answers["worker"]).as_py(),
    }
    yield from _miscounted(stated, held)


def _rating_counts(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """The same of a release of ratings."""
    columns = {"worker": pa.string(), "counted": pa.bool_(), "repeated": pa.bool_()}
    ratings = _typed(folder, manifest, "ratings", columns)
    held = {
        "ratings": ratings.num_rows,
        "ratings_counted": pc.sum(ratings["counted"], min_count=0).as_py(),
        "ratings_repeated": pc.sum(ratings["repeated"], min_count=0).as_py(),
        "workers": pc.count_distinct(ratings["worker"]).as_py(),
    }
    yield from _miscounted(_part(manifest, "counts"), held)


def _miscounted(stated: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[str]:
    told = {name: stated[name] for name in held if name in stated}  # earlier versions counted less
    for where, said, computed in _unlike(told, {name: held[name] for name in told}, ""):
        yield f"{MANIFEST} counts {where} as {said}, but the tables hold {computed}"


def _lists(folder: Path, manifest: Mapping[str, Any], positives: pd.DataFrame) -> Iterator[str]:
    """Where what is listed as a query's positives is not what ``positives.parquet`` holds of it."""
    released, pairs = read_release(folder), positives[list(_PAIR)].astype(str).astype(object)
    for direction, name in zip(Direction, SET_FORMS[sides_of(manifest)].lists, strict=True):
        by_query, (query, item) = released.by_query[direction], direction.ordered(*_PAIR)
        numbers = [len(items) for items in by_query.values()]
        listed = {
            query: np.repeat(list(by_query), numbers),
            item: list(chain.from_iterable(by_query.values())),
        }
        held = pairs[pairs[query].isin(by_query.keys())]
        both = pd.concat([pd.DataFrame(listed, dtype=object), held], ignore_index=True)
        packed = both[query].factorize()[0].astype(np.int64) << 32 | both[item].factorize()[0]
        surplus = pd.Series(np.repeat([1, -1], [sum(numbers), len(held)])).groupby(packed).transform("sum")
        wrong = both.loc[surplus.to_numpy() != 0, query].unique()
        if len(wrong):
            yield (
                f"{name} and positives.parquet differ on {several(len(wrong), 'query', 'queries')}, first on "
                f"{sorted(wrong)[0]!r}"
            )


def _design(audit: ReleasedAudit, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Where the design is not the one that the manifest names, or the pairs are not in the order of its drawing."""
    if _part(manifest, "configuration").get("audit") != audit.told["audit"]:
        yield f"{MANIFEST} and {CERTIFICATE} name different designs of the audit"
    if audit.audited["place"].tolist() != list(range(1, len(audit.audited) + 1)):
        yield "audit.parquet lacks places of the draw"


def _answers(audit: ReleasedAudit) -> Iterator[str]:
    """Where the two tables of answers differ, or two answers on a pair are one person's."""
    order = np.argsort(audit.audited["pair"].to_numpy(), kind="stable")
    rows = places(audit.audited["pair"].to_numpy()[order], audit.answers["pair"].to_numpy())
    numbers = audit.answers["number"].to_numpy()
    if (rows < 0).any() or not ((numbers >= 1) & (numbers <= ANSWERS_EACH)).all():
        yield "audit_answers.parquet holds an answer that audit.parquet knows nothing of"
        return
    given = np.full((len(order), ANSWERS_EACH), NONE, np.int8)
    given[order[rows], numbers - 1] = audit.answers["label"]
    stated = audit.audited[["first", "second", "third"]].to_numpy()
    wrong = (given != stated).any(axis=1)
    if wrong.any():
        yield (
            f"audit.parquet and audit_answers.parquet differ on {several(int(wrong.sum()), 'pair')}, first on "
            f"{_pair(audit, int(audit.audited['pair'].to_numpy()[wrong][0]))}"
        )
    if audit.answers.duplicated(["pair", "worker"]).any():
        yield "audit_answers.parquet holds two answers of one person on one pair"


def _held(audit: ReleasedAudit, tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Where what the release holds is not what the audit was held against."""
    drawn, held = audit.audited, audit.held["pair"].to_numpy()
    positives = tables["positives"]
    by_audit = _by_audit(positives)
    pairs = audit.packed(positives)
    others = np.sort(pairs[~by_audit])
    drawn_pairs = drawn["pair"].to_numpy()
    is_held = contains(held, drawn_pairs)
    # All audited pairs are of the pool, so a positive among them is held.
    wrong = (drawn["held"].to_numpy() != is_held) | (contains(others, drawn_pairs) != is_held)
    if wrong.any():
        yield (
            f"audit.parquet, audit_strata.parquet and positives.parquet differ on what is held, first on "
            f"{_pair(audit, int(drawn_pairs[wrong][0]))}"
        )
    found = confirmed(drawn) & ~is_held
    if (drawn["found"].to_numpy() != found).any() or int(found.sum()) != audit.told["found"]:
        yield "audit.parquet marks other pairs as found than its answers confirm"
    if not contains(np.sort(drawn_pairs[found]), pairs[by_audit]).all():
        yield "positives.parquet marks a pair as found by the audit that the audit did not find"
    if not (np.diff(held).all() and contains(others, held).all()):
        yield "audit_strata.parquet holds a pair twice, or one that is no positive of the release"
    if len(held) != audit.told["held"] or len(held) + audit.told["outside"] != int((~by_audit).sum()):
        yield (
            f"{CERTIFICATE} counts {audit.told['held']:,} held positives and {audit.told['outside']:,} outside the "
            f"pool, but audit_strata.parquet has {len(held):,} and positives.parquet {int((~by_audit).sum()):,} in all"
        )


def _by_audit(positives: pd.DataFrame) -> Flags:
    """(positives,) whether each is there by the audit alone."""
    return np.array([PositiveSource.AUDIT in sources for sources in positives["sources"]], np.bool_)


def _labels(audit: ReleasedAudit, tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Where people's released answers on audited pairs are not those of the other tables, or one answered twice."""
    drawn = audit.audited[["pair", "label"]]
    for name in ("positives", "negatives"):
        said = tables[name].assign(pair=audit.packed(tables[name])).dropna(subset="label")
        both = drawn.merge(said, on="pair", suffixes=("", "_there"))
        if (both["label"] != label_places(both["label_there"])).any():
            yield f"audit.parquet states other answers of people than {name}.parquet"
    asked = tables["judgements"].assign(pair=audit.packed(tables["judgements"])).dropna(subset="label")
    judged = np.sort(asked.loc[asked["usable"], "pair"].to_numpy())
    if ((drawn["label"] != NONE).to_numpy() != contains(judged, drawn["pair"].to_numpy())).any():
        yield "audit.parquet states answers of people that judgements.parquet does not hold, or lacks some"
    if len(audit.answers.merge(asked, on=["pair", "worker"])):
        yield "a person answered a pair for the audit who had answered it before"


def _certificate(audit: ReleasedAudit, positives: pd.DataFrame, manifest: Mapping[str, Any]) -> Certificate:
    """What the released answers certify."""
    is_held = contains(audit.held["pair"].to_numpy(), audit.packed(positives))
    found_by = positives.loc[is_held, "annotators"].map(len).to_numpy(np.int64)
    annotators = _part(_part(manifest, "counts"), "pairs_proposed_by")
    known = audit.audited.loc[audit.audited["label"] != NONE, ["pair", "label"]]
    try:
        found = matches_at_least(found_by, annotators, manifest["configuration"].get("runs", ()))
    except (AttributeError, KeyError, TypeError) as error:
        raise ReleaseError(
            f"{MANIFEST} does not say as a release does which annotators searched what; build it again"
        ) from error
    return certify(
        audit.audited,
        audit.design,
        audit.held,
        known.sort_values("pair", ignore_index=True),
        workers=audit.answers["worker"],
        chao=found,
    )


def _figures(audit: ReleasedAudit, certificate: Certificate) -> Iterator[str]:
    """Number by number, what ``certificate.json`` states and the released answers do not give."""
    given = {"certificate": json.loads(json.dumps(certificate.as_json())), "words": list(certificate.lines())}
    for where, stated, computed in _unlike({name: audit.told[name] for name in given}, given, ""):
        yield f"{CERTIFICATE} states {where} as {stated}, but the released answers give {computed}"


def _unlike(stated: Any, found: Any, where: str) -> Iterator[tuple[str, str, str]]:
    """Where two values of JSON differ by more than rounding."""
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in sorted(stated.keys() | found.keys()):
            yield from _unlike(stated.get(key), found.get(key), f"{where}.{key}".strip("."))
    elif isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        for place, values in enumerate(zip(stated, found, strict=True), start=1):
            yield from _unlike(*values, f"{where}.{place}")
    elif isinstance(stated, float | int) and isinstance(found, float | int):
        if not math.isclose(stated, found, rel_tol=_CLOSE, abs_tol=1e-12):
            yield where, f"{stated:.10g}", f"{found:.10g}"
    elif stated != found:
        yield where, repr(stated), repr(found)


def _documents(
    folder: Path, manifest: Mapping[str, Any], audit: ReleasedAudit, certificate: Certificate, by_audit: Flags
) -> Iterator[str]:
    """Documents that tell another certificate."""
    lines = certificate.lines()
    told = certified_told(
        audit.design,
        audit.held,
        found=audit.told["found"],
        entered=int(by_audit.sum()),
        outside=audit.told["outside"],
        lines=lines,
    )
    if told not in as_told_now(read_checked(folder, manifest, "datasheet.md").decode(errors="replace")):
        yield "datasheet.md tells another certificate than the released answers give"
    try:
        described = json.loads(read_checked(folder, manifest, "croissant.json"))
        tells = set(lines) <= set(described["rai:dataAnnotationAnalysis"])
    except (ValueError, KeyError, TypeError):
        tells = False
    if not tells:
        yield "croissant.json tells another certificate than the released answers give"
    if in_short(lines) not in read_checked(folder, manifest, "README.md").decode(errors="replace"):
        yield "README.md tells another certificate than the released answers give"


def _pair(audit: ReleasedAudit, packed: int) -> str:
    image, caption = packed >> 32, packed & 0xFFFFFFFF
    return f"image {audit.image_ids[image]} with caption {audit.caption_ids[caption]}"
