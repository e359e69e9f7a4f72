"""A small world's release: its records and its files."""

from __future__ import annotations

import random

import numpy as np
from record_kit import proposal_frame

from mitl.positives.merging import Exclusions, MergeRules, gather, merge
from mitl.positives.pair_answers import judgement_frame, packed, pair_answers
from mitl.positives.release_input import ReleaseInput
from mitl.records import (
    Concept,
    Direction,
    Environment,
    IdKind,
    Judgement,
    Label,
    Outcome,
    Pair,
    PairRole,
    Proposal,
    Shortcoming,
)

YES, WEAK_YES, WEAK_NO, NO = Label


IMAGES, CAPTIONS = range(1, 7), range(1, 31)


SALT = b"0123456789abcdef"


FILES = {
    "README.md",
    "caption_to_image.json",
    "conflicts.csv",
    "croissant.json",
    "datasheet.md",
    "image_to_caption.json",
    "judgements.parquet",
    "manifest.json",
    "negatives.parquet",
    "mturk_parsed.csv",
    "positives.parquet",
}


def records(seed=0):
    """Six images, thirty captions, three workers, two annotators: judgements, proposals, originals, ratings."""
    rng = random.Random(seed)
    pairs = [Pair(image, caption) for image in IMAGES for caption in CAPTIONS if (image * caption) % 3 == 0]
    judgements = [
        Judgement(pair, f"A{n % 3}", list(Label)[(pair.image_id + pair.caption_id) % 4], active_ms=100 * n)
        for n, pair in enumerate(pairs)
    ]
    judgements += [
        Judgement(Pair(1, 1), "A1", YES, role=PairRole.GOLD_POSITIVE),
        Judgement(Pair(1, 2), "A1", NO, usable=False),
        Judgement(Pair(1, 3), "A2", None, outcome=Outcome.SKIPPED),
        Judgement(
            Pair(2, 2),
            "A2",
            WEAK_NO,
            role=PairRole.OVERLAP,
            given={
                "shortcoming": (Shortcoming.NOT_IN_IMAGE, Shortcoming.DESCRIBED_WRONGLY),
                "concept": (Concept.COLOR,),
            },
        ),
        Judgement(Pair(3, 1), "A1", YES, role=PairRole.REPEAT),
    ]
    proposals = [
        Proposal(pair, annotator, direction, 1 + pair.caption_id % 5, 0.1 * pair.image_id)
        for pair in [*pairs, Pair(2, 2)]
        for annotator, direction in (("vsrn", Direction.I2T), ("clip", Direction.T2I))
    ]
    originals = [Pair(1 + (caption - 1) // 5, caption) for caption in CAPTIONS]
    ratings = [(pair, float(pair.caption_id % 6)) for pair in originals]
    for part in (judgements, proposals, originals, ratings):
        rng.shuffle(part)
    return judgements, proposals, originals, ratings


def world(kind=IdKind.INTEGER, *, seed=0, salt=SALT, **changes):
    """What a release of these records is made of; ids are 10n, or names for strings."""
    judgements, proposals, originals, ratings = records(seed)
    prefix = "" if kind is IdKind.INTEGER else "item-"
    rules = changes.pop("rules", MergeRules())
    columns = judgement_frame(judgements)
    answers = pair_answers(columns, rules).pairs
    rated = [pair for pair, _ in ratings], np.array([score for _, score in ratings])
    evidence = gather(answers, packed(rated[0]), rated[1], packed(originals))
    return ReleaseInput(
        name="demo",
        dataset="scenes",
        environment=Environment.SANDBOX,
        id_kind=kind,
        image_ids={n: f"{prefix}{10 * n:02}" for n in IMAGES},
        caption_ids={n: f"{prefix}{100 * n}" for n in CAPTIONS},
        queries={Direction.I2T: tuple(IMAGES), Direction.T2I: tuple(range(1, 16))},
        merged=merge(evidence, rules, Exclusions()),
        rules=rules,
        judgements=columns,
        proposals=proposal_frame(proposals),
        salt=salt,
        seeds={"propose": 0},
        **changes,
    )
