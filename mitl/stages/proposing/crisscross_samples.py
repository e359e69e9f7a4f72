"""What phase 1 sampled, kept as a file, and what of a sampling is not stored yet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from mitl.core.whole_files import one_clear_line, whole_file
from mitl.proposals.crisscross import CaptionGroups
from mitl.records.frames import frame
from mitl.records.similarity import METHODS, SAMPLES, SamplingMethod
from mitl.settings import Settings

FOLDER = "crisscross"
"""Within ``runs``."""
_KEY = ["task", "first", "second", "method", "encoder"]


@dataclass(frozen=True, slots=True)
class KeptSamples:
    """What phase 1 sampled under one configuration, as a file."""

    path: Path

    @classmethod
    def of(cls, settings: Settings, config: object) -> KeptSamples:
        """Named by the hash of the configuration, a JSON value."""
        text = json.dumps(config, sort_keys=True)
        return cls(settings.runs / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.parquet")

    def read(self) -> pd.DataFrame | None:
        """``SAMPLES`` without ``pair``; None where there are none, or where the file cannot be read any more."""
        try:
            stored = pd.read_parquet(self.path)
            return frame(SAMPLES, {name: stored[name] for name in SAMPLES if name != "pair"})
        except (OSError, ValueError, KeyError):
            return None

    def write(self, samples: pd.DataFrame) -> None:
        """Keep them; RetrievalError where the disk is full."""
        with one_clear_line(self.path, "run the command again when there is room"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self.path) as sink:
                samples.astype({"encoder": "str"}).to_parquet(sink, index=False)


def new_rows(sampled: pd.DataFrame, stored: pd.DataFrame, groups: CaptionGroups) -> pd.DataFrame:
    """The rows that are not stored; an image whose co-captions were drawn before, with another seed, keeps its pairs.

    Args:
        sampled, stored: ``SAMPLES``, the first without ``pair``.
    """
    known = set(_keys(stored))
    is_there = np.array([key in known for key in _keys(sampled)], np.bool_)
    co_captions = METHODS.index(SamplingMethod.C2C_COCAPTION)
    drawn = stored.loc[stored["method"] == co_captions, "first"]
    images = groups.image_of[np.isin(groups.captions, drawn)]
    is_done = np.isin(sampled["first"], groups.captions[np.isin(groups.image_of, images)])
    return sampled[~is_there & ~((sampled["method"] == co_captions).to_numpy() & is_done)]


def _keys(samples: pd.DataFrame) -> Sequence[tuple[object, ...]]:
    return list(zip(*(samples[name].tolist() for name in _KEY), strict=True))
