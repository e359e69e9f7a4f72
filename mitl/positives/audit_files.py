"""The files in which a release carries its certificate, and these files read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from mitl.core.arrays import Ints, pack_ids, places
from mitl.errors import ReleaseError
from mitl.positives.certifying import RELEASED_AUDIT, CertifiedAudit
from mitl.positives.folders import checked_table, read_checked
from mitl.positives.ids import PAIR_COLUMNS, Names, pair_columns
from mitl.positives.privacy import pseudonym
from mitl.positives.release_input import ReleaseInput
from mitl.positives.tables import label_column
from mitl.records.audits import AUDIT_ANSWERS, HELD, AuditDesign
from mitl.records.frames import LABELS, Schema, frame

CERTIFICATE = "certificate.json"
CERTIFICATE_FORMAT = "mitl-certificate-1"
AUDIT_TABLES = ("audit", "audit_answers", "audit_strata")
"""Names of the Parquet files, without suffix."""
_LABELLED = ("first", "second", "third", "label")


def audit_tables(data: ReleaseInput, audit: CertifiedAudit, names: Names) -> dict[str, pa.Table]:
    """Each table by its name: the audited pairs as they were drawn, their answers, and what the release holds.

    Answers stand in order of their pair and number, so that nothing tells of two pairs which was answered first.
    """
    audited = audit.audited
    given = audit.record.answers.sort_values(["pair", "number"], ignore_index=True)
    plain = [name for name in RELEASED_AUDIT if name not in (*_LABELLED, "pair")]
    return {
        "audit": pa.table(
            {
                **pair_columns(names, audited),
                **{name: pa.array(audited[name].to_numpy()) for name in plain},
                **{name: label_column(audited[name]) for name in _LABELLED},
            }
        ),
        "audit_answers": pa.table(
            {
                **pair_columns(names, given),
                "number": pa.array(given["number"].to_numpy()),
                "label": label_column(given["label"]),
                "worker": pa.array([pseudonym(worker, data.salt) for worker in given["worker"]], pa.string()),
            }
        ),
        "audit_strata": pa.table(
            {**pair_columns(names, audit.held), "stratum": pa.array(audit.held["stratum"].to_numpy())}
        ),
    }


def certificate_file(audit: CertifiedAudit) -> dict[str, object]:
    """What ``certificate.json`` says: the design, what it was held against, every figure, and the words."""
    return {
        "format": CERTIFICATE_FORMAT,
        "audit": audit.named,
        "held": len(audit.held),
        "outside": audit.outside,
        "found": int(audit.audited["found"].sum()),
        "certificate": audit.certificate.as_json(),
        "words": list(audit.certificate.lines()),
    }


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedAudit:
    """A release's audit, read from its files; images and captions are numbered here in the order of their ids."""

    image_ids: NDArray[Any]
    """Those that the audit's tables name, as they are released; ascending."""
    caption_ids: NDArray[Any]
    design: AuditDesign
    audited: pd.DataFrame
    """``RELEASED_AUDIT``, in the order of drawing."""
    answers: pd.DataFrame
    """``AUDIT_ANSWERS``, by pair and number; workers are pseudonyms."""
    held: pd.DataFrame
    """``HELD``."""
    told: Mapping[str, Any]
    """``certificate.json``."""

    def packed(self, table: pd.DataFrame) -> Ints:
        """The pairs in the rows of any of the release's tables; -1 where the audit's tables do not name them."""
        images = places(self.image_ids, table["image_id"].to_numpy())
        captions = places(self.caption_ids, table["caption_id"].to_numpy())
        known = (images >= 0) & (captions >= 0)
        pairs = np.full(len(table), -1)
        pairs[known] = pack_ids(images[known], captions[known])
        return pairs


def read_audit(folder: Path, manifest: Mapping[str, object]) -> ReleasedAudit | None:
    """The audit that certifies a release; None where none does.

    Raises:
        ReleaseError: a file of it is missing, changed since the release, or malformed.
    """
    files = manifest["files"]
    if not isinstance(files, dict) or CERTIFICATE not in files:
        return None
    try:
        told = json.loads(read_checked(folder, manifest, CERTIFICATE))
        tables = {name: checked_table(folder, manifest, f"{name}.parquet") for name in AUDIT_TABLES}
        return _numbered(told, {name: table.to_pandas() for name, table in tables.items()})
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise ReleaseError(
            f"the audit in {str(folder)!r} cannot be read: {' '.join(str(error).split())[:200]}; "
            "build the release again"
        ) from error


def _numbered(told: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> ReleasedAudit:
    if told["format"] != CERTIFICATE_FORMAT:
        raise ValueError(
            f"{CERTIFICATE} is of the format {told['format']!r}, but this reads {CERTIFICATE_FORMAT!r}"
        )
    if not all(isinstance(told[name], int) for name in ("held", "outside", "found")):
        raise ValueError(f"{CERTIFICATE} counts something by what is no number")
    parts = told["audit"]["design"], told["certificate"]
    if not all(isinstance(part, dict) for part in parts) or not isinstance(told["words"], list):
        raise ValueError(f"{CERTIFICATE} holds no certificate with its design")
    names = {
        column: np.unique(np.concatenate([table[column] for table in tables.values()]))
        for column in PAIR_COLUMNS
    }

    def pairs(table: pd.DataFrame) -> Ints:
        return pack_ids(*(np.searchsorted(known, table[column]) for column, known in names.items()))

    audit, answers, strata = (tables[name] for name in AUDIT_TABLES)
    audited = _labelled(audit.assign(pair=pairs(audit)), RELEASED_AUDIT)
    given = _labelled(
        answers.assign(pair=pairs(answers)), {k: v for k, v in AUDIT_ANSWERS.items() if k != "place"}
    )
    held = frame(HELD, {"pair": pairs(strata), "stratum": strata["stratum"]})
    design = AuditDesign.from_json(json.dumps(told["audit"]["design"]))
    _check_numbers(design)
    for table in (audited, held):
        if not table["stratum"].between(0, len(design.strata) - 1).all():
            raise ValueError(f"a pair is in a stratum that the design lacks; it has {len(design.strata)}")
    return ReleasedAudit(
        image_ids=names["image_id"],
        caption_ids=names["caption_id"],
        design=design,
        audited=audited.sort_values("place", ignore_index=True),
        answers=given,
        held=held.sort_values("pair", ignore_index=True),
        told=told,
    )


def _check_numbers(design: AuditDesign) -> None:
    """Refuse a design whose figures are not what they should be.

    Raises:
        ValueError: one is not.
    """
    whole = [number for stratum in design.strata for number in (stratum.size, stratum.sample)]
    shares = [number for stratum in design.strata for number in (stratum.recheck_share, stratum.expected)]
    if not isinstance(design.shares, dict | None) or not all(
        isinstance(stratum.name, str) for stratum in design.strata
    ):
        raise ValueError("the design deals its risk by no object, or a stratum has no name")
    dealt = [design.confidence, *(design.shares or {}).values()]
    if not all(isinstance(number, int) and number >= 0 for number in whole):
        raise ValueError("a stratum's pairs are no whole number")
    if not all(isinstance(number, int | float) and 0 <= number <= 1 for number in [*shares, *dealt]):
        raise ValueError("a share of the design is not from 0 to 1")
    if not design.strata or not 0 < design.confidence < 1:
        raise ValueError("the design has no strata, or no confidence between 0 and 1")


def _labelled(table: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Columns of the schema, labels by their places."""
    return frame(
        schema, {name: label_places(table[name]) if name in _LABELLED else table[name] for name in schema}
    )


def label_places(words: pd.Series[str]) -> NDArray[np.int8]:
    """Labels by their places in Label, NONE where there is none.

    Raises:
        ValueError: a word is no label.
    """
    found = pd.Index([label.value for label in LABELS]).get_indexer(pd.Index(words))
    unknown = words[(found < 0) & words.notna().to_numpy()]
    if len(unknown):
        raise ValueError(f"{unknown.iloc[0]!r} is no label")
    return found.astype(np.int8)
