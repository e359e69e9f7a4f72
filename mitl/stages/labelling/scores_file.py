"""Probabilities of a match that were made elsewhere, as one file: what machine labels may rest on beside fused ones."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mitl.core.packed import pack_ids
from mitl.crowd.context import Context
from mitl.datasets.files import read_rows
from mitl.db.store import items as item_store
from mitl.errors import DatasetError
from mitl.records.audits import FUSED
from mitl.records.frames import frame

_COLUMNS = ("image_id", "caption_id", "probability")
_HOLDS = f"the columns {', '.join(_COLUMNS)}"


def read_scores(context: Context, path: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """What is said of the file, and ``FUSED``, with one fold: nobody knows here what the scores have read.

    Raises:
        DatasetError: the file is missing or malformed, names what the data set lacks or a pair twice, or a probability
            is not from 0 to 1.
    """
    rows = pd.DataFrame(read_rows(path, _HOLDS, _COLUMNS), columns=list(_COLUMNS))
    ids = []
    known_ids = item_store.id_maps(context.session, item_store.dataset(context.session).id)
    for column, known in zip(_COLUMNS[:2], known_ids, strict=True):
        numbers = rows[column].astype(str).map(known)
        if numbers.isna().any():
            name = rows.loc[numbers.isna(), column].iloc[0]
            raise DatasetError(
                f"{str(path)!r} scores {column} {str(name)!r}, which is not in the data set; take ids from "
                "`mitl export` or the data set's own files"
            )
        ids.append(numbers.to_numpy(np.int64))
    probability = pd.to_numeric(rows["probability"], errors="coerce").to_numpy(np.float64)
    wrong = ~((probability >= 0) & (probability <= 1))
    if wrong.any():
        found = rows["probability"].iloc[int(wrong.argmax())]
        raise DatasetError(f"{str(path)!r} holds the probability {found!r}; each is a number from 0 to 1")
    pairs = pack_ids(*ids)
    order = np.argsort(pairs, kind="stable")
    if (np.diff(pairs[order]) == 0).any():
        twice = rows.iloc[order[int((np.diff(pairs[order]) == 0).argmax())]]
        raise DatasetError(
            f"{str(path)!r} scores image {twice['image_id']} with caption {twice['caption_id']} twice; give each pair "
            "one row"
        )
    about = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    columns = {"pair": pairs[order], "probability": probability[order], "fold": np.zeros(len(pairs))}
    return about, frame(FUSED, columns)
