"""Made-up evidence: items lie in a plane, and a match is a pair that lies near."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from mitl.core.arrays import pack_ids, unpack_ids
from mitl.fusion.evidence import ANSWERED, FusionEvidence, Joint, UnitVectors, of_length_1
from mitl.records.frames import PROPOSALS, frame

IMAGES = 30
CAPTIONS_EACH = 2
DEPTH = 12
WORDS = ("red", "blue", "dog", "cat", "ball", "tree")


def evidence(seed: int = 0, *, answered: float = 0.7) -> FusionEvidence:
    """Two annotators' rankings of all items, vectors of both sides, and answers on a share of the ranked pairs."""
    rng = np.random.default_rng(seed)
    images = np.arange(1, IMAGES + 1)
    image_of = np.repeat(images, CAPTIONS_EACH)
    captions = np.arange(1, len(image_of) + 1)
    at = rng.normal(size=(IMAGES, 3))
    of_captions = at[image_of - 1] + 0.3 * rng.normal(size=(len(captions), 3))
    near = -((at[:, None] - of_captions[None]) ** 2).sum(axis=2)
    ranked = pd.concat([_ranked(name, near + 0.7 * rng.normal(size=near.shape)) for name in ("one", "two")])
    vectors = (
        UnitVectors("v", images, of_length_1(at.astype(np.float32))),
        UnitVectors("v", captions, of_length_1(of_captions.astype(np.float32))),
    )
    made = FusionEvidence(
        ranked=frame(PROPOSALS, {name: ranked[name].to_numpy() for name in PROPOSALS}),
        captions=captions,
        image_of=image_of,
        answers=answers([], [], []),
        texts=(vectors[1],),
        pictures=(vectors[0],),
        joint=(Joint(*vectors),),
        words=tuple(tuple(rng.choice(WORDS, 2)) for _ in captions),
    )
    left, right = unpack_ids(made.pairs)
    is_match = near[left - 1, right - 1] > -1.2
    said = np.flatnonzero(rng.random(len(made.pairs)) < answered)
    yes = is_match[said] ^ (rng.random(len(said)) < 0.05)
    return replace(made, answers=answers(made.pairs[said], yes, ~yes))


def answers(pairs, yes, no) -> pd.DataFrame:
    return frame(ANSWERED, {"pair": pairs, "yes": yes, "no": no})


def _ranked(name: str, similarity: np.ndarray) -> pd.DataFrame:
    parts = []
    for direction, values in enumerate((similarity, similarity.T)):
        items = np.argsort(-values, axis=1, kind="stable")[:, :DEPTH]
        queries = np.repeat(np.arange(1, len(values) + 1), DEPTH)
        found = items.reshape(-1) + 1
        pairs = pack_ids(queries, found) if direction == 0 else pack_ids(found, queries)
        parts.append(
            pd.DataFrame(
                {
                    "pair": pairs,
                    "annotator": name,
                    "direction": direction,
                    "rank": np.tile(np.arange(1, DEPTH + 1), len(values)),
                    "similarity": np.take_along_axis(values, items, axis=1).reshape(-1),
                }
            )
        )
    return pd.concat(parts)
