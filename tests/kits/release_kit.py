"""A small world's release: its records and its files."""

from __future__ import annotations

import dataclasses
import errno
import random
from pathlib import Path

import numpy as np
from record_kit import machine_frame, proposal_frame

from mitl.audits.pool import Pool, RemainderOf, draw
from mitl.core.arrays import pack_each, unpack_pairs
from mitl.positives.certifying import AuditRecord, certified
from mitl.positives.exclusions import Exclusions
from mitl.positives.merging import MergeRules, gather, merge
from mitl.positives.pair_answers import judgement_frame, pair_answers
from mitl.positives.release_input import ReleaseInput
from mitl.records import (
    AuditPurpose,
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
from mitl.records.audits import AUDIT_ANSWERS, AUDITED, LISTED, AuditDesign, Stratum
from mitl.records.frames import LABELS, NONE, frame

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


def world(kind=IdKind.INTEGER, *, seed=0, salt=SALT, machine=None, dataset_sha256="", **changes):
    """What a release of these records is made of; ids are 10n, or names for strings.

    Args:
        machine: pair → label that a machine gave.
        dataset_sha256: what a manifest names; without it the release stands beside any project.
    """
    judgements, proposals, originals, ratings = records(seed)
    prefix = "" if kind is IdKind.INTEGER else "item-"
    rules = changes.pop("rules", MergeRules())
    columns = judgement_frame(judgements)
    answers = pair_answers(columns, rules).pairs
    rated = [pair for pair, _ in ratings], np.array([score for _, score in ratings])
    labels = machine_frame(machine or {})
    evidence = gather(answers, pack_each(rated[0]), rated[1], pack_each(originals), labels)
    return ReleaseInput(
        name="demo",
        dataset="scenes",
        dataset_sha256=dataset_sha256,
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


AUDITORS = [f"A{n}" for n in range(3, 8)]


def fail_to_put_in_place(patch):
    """The disk is full when a finished folder is to get its name."""
    rename = Path.rename

    def fail(self, target):
        if self.name == "new":
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, target)

    patch.setattr(Path, "rename", fail)


def runs_of(clip, vsrn):
    """What a manifest says of two annotators that searched these queries."""
    return [
        {"annotators": [{"name": name}], "queries": {"i2t": {"count": 3, "sha256": queries}}}
        for name, queries in (("clip", clip), ("vsrn", vsrn))
    ]


def truly_matches(pair):
    """What the audit's workers call a match."""
    return (pair.image_id * pair.caption_id) % 7 == 0 or (pair.image_id + pair.caption_id) % 4 < 2


def audit_record(merged, *, seed=5, answer=None):
    """A complete audit of all pairs: half of the positives, and of the other pairs a third; five workers in turn."""
    answer = answer or (lambda pair, _: YES if truly_matches(pair) else NO)
    pool = Pool(*(np.arange(1, n) for n in (7, 16, 7, 31)))
    kept = merged.where("kept")
    held = kept[pool.holds(kept)]
    rest = RemainderOf(pool, held)
    design = AuditDesign(
        AuditPurpose.RECALL,
        seed,
        (
            Stratum("positives", len(held), len(held) // 2, 1.0, 0.9),
            Stratum("remainder", rest.size, rest.size // 3, 0.2, 0.1),
        ),
    )
    drawn = draw(design, [held, rest])
    listed = frame(LISTED, {"pair": held, "stratum": np.zeros(len(held))})
    rows, answers = [], []
    for place, (pair, again) in enumerate(
        zip(unpack_pairs(drawn["pair"].to_numpy()), drawn["recheck"], strict=True)
    ):
        given = [answer(pair, number) for number in (1, 2, 3)]
        given = given if again or given[0].is_positive else given[:1]
        for number, label in enumerate(given, start=1):
            worker = AUDITORS[(place + number) % len(AUDITORS)]
            answers.append((place + 1, drawn["pair"][place], number, LABELS.index(label), worker))
        rows.append([LABELS.index(label) for label in given] + [NONE] * (3 - len(given)))
    labels = np.array(rows)
    audited = drawn.assign(**{name: labels[:, n] for n, name in enumerate(("first", "second", "third"))})
    return AuditRecord(
        number=1,
        design=design,
        pool_sha256="0" * 64,
        pool=pool,
        listed=listed,
        audited=frame(AUDITED, {name: audited[name] for name in AUDITED}),
        answers=frame(AUDIT_ANSWERS, dict(zip(AUDIT_ANSWERS, zip(*answers, strict=True), strict=True))),
    )


def audited_world(kind=IdKind.INTEGER, *, exclusions=None, answer=None, **changes):
    """The world with a certificate."""
    data = world(kind, **changes)
    exclusions = exclusions or Exclusions()
    merged, audit = certified(
        audit_record(data.merged, answer=answer),
        data.merged,
        exclusions,
        data.proposals,
        data.configuration.get("runs", ()),
        strict=data.rules.strict,
    )
    configuration = {**data.configuration, "audit": audit.named}
    return dataclasses.replace(data, merged=merged, audit=audit, configuration=configuration)
