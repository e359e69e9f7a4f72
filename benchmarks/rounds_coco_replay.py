"""COCO's test split with the rankings of caption pivots, and an oracle of what is publicly known of its pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from coco_walk import CAPTIONERS
from pseudo_labels import encoded, find

from annotators import registry
from annotators.item_encoders import SENTENCES, WORDS, build_encoder
from mitl.core.arrays import Ints, contains, distinct, pack_ids, places
from mitl.datasets.coco import read_compact
from mitl.datasets.cxc import POSITIVE_FROM, read_sits
from mitl.datasets.official import OfficialPositives, official_positives
from mitl.fusion.evidence import ANSWERED, FusionEvidence, UnitVectors
from mitl.fusion.fusing import STATIC
from mitl.fusion.likeness import Directions
from mitl.fusion.models import Examples, Matrix, fit, predict
from mitl.proposals.candidates import NamedRanking, propose
from mitl.records import CaptionItem, Direction, ImageItem, Rating
from mitl.records.frames import frame
from mitl.retrieval.topk import top_k
from mitl.selection.choice import TOP_K

DEPTH = 25
"""Ranks that annotators list, as in ECCV Caption; the first five are the full round."""
TEXT_MODELS = ("tfidf", "lsa", "tfidf", "lsa", "tfidf")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, eq=False)
class Oracle:
    """What is publicly known of pairs; each array packed, ascending and distinct, no pair in both."""

    yes: Ints
    no: Ints

    @classmethod
    def of(cls, released: OfficialPositives, ratings: Sequence[Rating]) -> Oracle:
        """ECCV Caption's positives and CxC's ratings; what was released stays yes though CxC rates it below 3."""
        rated = _packed((rating.image_external_id, rating.caption_external_id) for rating in ratings)
        is_high = np.array([rating.score >= POSITIVE_FROM for rating in ratings], np.bool_)
        yes = distinct(np.append(_packed(released.pairs()), rated[is_high]))
        no = distinct(rated[~is_high])
        return cls(yes, no[~contains(yes, no)])


@dataclass(frozen=True, eq=False)
class Replay:
    """Rankings of a test split, what its texts say, and the oracle."""

    evidence: FusionEvidence
    """Rankings to their full depth, no answers."""
    oracle: Oracle
    image_queries: Ints
    """Ascending; where a pair's image is none of these, its caption asked."""

    def pool(self, deepest: int) -> pd.DataFrame:
        """``PROPOSALS`` down to a rank."""
        ranked = self.evidence.ranked
        return ranked[ranked["rank"] <= deepest]

    @cached_property
    def full(self) -> Ints:
        """The pairs of a full round: everybody's first five."""
        return distinct(self.pool(TOP_K)["pair"].to_numpy())

    @cached_property
    def _features(self) -> Matrix:
        """(n, F) of all ranked pairs."""
        static = [build(self.evidence)[1] for build in STATIC.values()]
        of_items = Directions.of(self.evidence).rows(np.arange(len(self.evidence.pairs)))
        return np.concatenate([*static, of_items], axis=1)

    def scored(self, answers: pd.DataFrame) -> pd.DataFrame:
        """Each ranked pair and its probability, by what was answered."""
        at = places(self.evidence.pairs, answers["pair"].to_numpy())
        said = (answers[name].to_numpy() for name in ("yes", "no"))
        model = fit("boosted", Examples(self._features[at], *said))
        probability = 1 / (1 + np.exp(-predict(model, self._features)))
        return pd.DataFrame({"pair": self.evidence.pairs, "probability": probability})


def answered(asked: Ints, oracle: Oracle) -> pd.DataFrame:
    """``ANSWERED``: yes, and the rest as what yes is told from."""
    pairs = np.sort(asked)
    yes = contains(oracle.yes, pairs)
    return frame(ANSWERED, {"pair": pairs, "yes": yes, "no": ~yes})


def _packed(pairs: Iterable[tuple[str, str]]) -> Ints:
    rows = np.array([(int(image), int(caption)) for image, caption in pairs], np.int64).reshape(-1, 2)
    return pack_ids(rows[:, 0], rows[:, 1])


def coco(data: Path, kept: Path) -> Replay:
    """The test split, or what the files hold of it, under COCO's own ids; rankings and encodings are made once."""
    found = read_compact(find(data, "captions.parquet"))
    captions = [
        CaptionItem(int(one.external_id), one.external_id, int(one.image_external_id), one.text)
        for one in sorted(found.captions, key=lambda one: int(one.external_id))
    ]
    images = [ImageItem(one, str(one)) for one in sorted({caption.image_id for caption in captions})]
    released = official_positives("eccv")
    queries = {
        direction: np.array(sorted({item.id for item in items} & set(map(int, asking))), np.int64)
        for direction, items, asking in (
            (Direction.I2T, images, released.image_to_caption),
            (Direction.T2I, captions, released.caption_to_image),
        )
    }
    path = kept / "rankings.parquet"
    if not path.exists():
        rankings = [*_rankings(images, captions, queries, find(data, "machine_captions.parquet"))]
        propose(rankings, DEPTH).to_parquet(path)
    ranked = pd.read_parquet(path)
    ids = np.array([caption.id for caption in captions], np.int64)
    sentences = encoded([one.text for one in captions], ids, kept / "encodings.npz", 1)
    words = build_encoder(WORDS, "caption", {}, kept).encode_captions(captions).arrays["embedding"]
    evidence = FusionEvidence(
        ranked,
        ids,
        np.array([caption.image_id for caption in captions], np.int64),
        answered(np.empty(0, np.int64), Oracle(np.empty(0, np.int64), np.empty(0, np.int64))),
        texts=(UnitVectors(SENTENCES, ids, sentences), UnitVectors(WORDS, ids, words)),
        words=tuple(tuple(_WORD.findall(caption.text.lower())) for caption in captions),
    )
    oracle = Oracle.of(released, read_sits(find(data, "sits_test.csv")))
    return Replay(evidence, oracle, queries[Direction.I2T])


def _rankings(
    images: Sequence[ImageItem],
    captions: Sequence[CaptionItem],
    queries: Mapping[Direction, Ints],
    machine: Path,
) -> Iterator[NamedRanking]:
    for captioner, model in zip(CAPTIONERS, TEXT_MODELS, strict=True):
        annotator: Any = registry.build(f"pivot-{captioner}-{model}", {"captions": str(machine)})
        left, right = annotator.encode_images(images), annotator.encode_captions(captions)
        for direction, ids in queries.items():
            asking, gallery = (left, right) if direction is Direction.I2T else (right, left)
            rows = asking.rows(np.searchsorted(asking.ids, ids))
            yield NamedRanking(annotator.name, direction, top_k(annotator, rows, gallery, DEPTH))
