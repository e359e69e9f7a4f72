"""The datasheet's account of machines and audits: rounds, annotators that learnt, machine labels, the certificate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from mitl.audits.machine_labels import Loss
from mitl.core.formats import percent_at_most
from mitl.positives.markdown import listed, plain, table
from mitl.positives.merging import MATCHES, REFUSES
from mitl.positives.release_input import MachineBound, Origins, ReleaseInput, TrainedMachine
from mitl.positives.summary import Summary
from mitl.records import several
from mitl.records.audits import AuditDesign
from mitl.records.rounds import DOUBTS


def unasked(data: ReleaseInput, summary: Summary) -> str:
    """Which pairs nobody was asked about, without a full stop."""
    if not summary.proposed_by:
        return "Nobody was asked about most pairs"
    origins = data.origins
    further = ((origins.rounds, "no round chose"), (origins.past_work, "no past work asked about"))
    lacked = ["no machine annotator proposed", *(words for were, words in further if were)]
    asked = "never asked" if data.audit is None else "asked in the audit's sample alone"
    return f"Pairs that {listed(lacked)} were {asked}"


def rounds_told(origins: Origins) -> list[str]:
    """A sentence for each round; none without rounds."""
    return [
        f"Round {round_.number} chose {several(round_.pairs, 'pair')} to ask, by the strategy {round_.strategy}"
        f"{', and was taken back later; its answers count' if round_.rolled_back else ''}."
        f"{_AGAIN if round_.strategy == DOUBTS else ''}"
        for round_ in origins.rounds
    ]


_AGAIN = (
    " These pairs had an answer or a machine label already, which seemed to be wrong; workers agree less on them than "
    "on others."
)


def learnt(machine: TrainedMachine) -> str:
    """How an annotator came to its weights, without a full stop."""
    when = "" if machine.round is None else f" in round {machine.round}"
    collected = f" ({machine.collected:,} of them collected here)" if machine.collected else ""
    return (
        f"trained{when} from {machine.base} on {several(machine.answers, 'answer')} on "
        f"{several(machine.pairs, 'pair')} and on originals{collected}, weights SHA-256 {machine.weights_sha256}"
    )


_FROM_STRATA = "at random, so many from each of the strata as its row below says"


def as_told_now(sheet: str) -> str:
    """A datasheet in the words of this version where an earlier one said the same of the draw."""
    return sheet.replace("were drawn at random from each of the strata below", f"were drawn {_FROM_STRATA}")


def certified_told(
    design: AuditDesign, held: pd.DataFrame, *, found: int, entered: int, outside: int, lines: Iterable[str]
) -> str:
    """How the audit was drawn and answered, and what it certifies, in Markdown.

    Args:
        held: ``HELD``.
        found: pairs that only the audit found.
        entered: those of them that the release holds now.
        outside: positives that are not in the pool.
        lines: the certificate in words.
    """
    in_stratum = np.bincount(held["stratum"], minlength=len(design.strata)).tolist()
    rows = [
        (plain(stratum.name), f"{stratum.size:,}", f"{n:,}", f"{stratum.sample:,}")
        for stratum, n in zip(design.strata, in_stratum, strict=True)
    ]
    drawn = "at random" if design.simple else _FROM_STRATA
    parts = [
        f"Of the {design.size:,} pairs of the queries that were asked with all that they search, {design.sample:,} "
        f"were drawn {drawn}, each with a known probability. People answered them blind, on the same pages as other "
        "pairs; a match, and a part of the others that was drawn beforehand, went to two further people. Nothing that "
        "proposed, learned or merged has read these answers: `audit.parquet` and `audit_answers.parquet` hold them, "
        "`audit_strata.parquet` what they were held against.",
        table(("stratum", "pairs", "held as positives", "drawn"), rows),
        "\n".join(f"- {line}" for line in lines),
        f"{several(found, 'pair')} of the sample {'is a match' if found == 1 else 'are matches'} that "
        + (
            "nothing else had found: in the release, marked `audit`, and not among what is counted as held."
            if entered == found
            else f"the release did not hold: {entered:,} of them in it now, marked `audit`, and not among what is "
            "counted as held; exclusion lists or the rule for answers leave the rest out."
        ),
    ]
    if outside:
        parts.append(
            f"Of {several(outside, 'positive')} outside these pairs the certificate says nothing: their queries were "
            "not asked."
        )
    parts.append("`mitl verify` computes these figures again from the released files alone.")
    return "\n\n".join(parts)


def audit_told(data: ReleaseInput) -> str:
    """The certificate of this release."""
    audit = data.audit
    assert audit is not None
    return certified_told(
        audit.record.design,
        audit.held,
        found=int(audit.audited["found"].sum()),
        entered=int(data.merged.pairs["found"].sum()),
        outside=audit.outside,
        lines=audit.certificate.lines(),
    )


def in_short(lines: Sequence[str]) -> str:
    """The bounds alone, of a certificate's lines, and what weakens them."""
    told = (*lines[:3], *(line for line in lines if line.startswith("WARNING")))
    return "\n".join(f"- {line}" for line in told)


def machine_counts(data: ReleaseInput) -> tuple[int, int, int]:
    """Machine labels that are read, and of these the matches and the others."""
    labels = data.merged.pairs["machine"].to_numpy()
    yes, no = int(MATCHES[labels].sum()), int(REFUSES[labels].sum())
    return yes + no, yes, no


_LOSSES = {"ordinal": ", each level that a label is off counted as a third,"}


def siding_told(bound: MachineBound) -> str:
    """What a bound of machine labels says of errors that workers do not see."""
    if bound.loss == Loss.ORDINAL:
        return "The loss is against answers as they were given, so errors that workers share are not in this bound."
    if bound.siding:
        most = percent_at_most(bound.siding)
        return f"Workers who side with the machine where it is wrong are reckoned with, up to {most}."
    return "Errors with which the first worker sided are not in this bound."


def machine_told(data: ReleaseInput) -> str:
    """What a machine labelled, under which bound, and what its labels are worth."""
    total, yes, no = machine_counts(data)
    merged = data.merged.pairs
    stand = int((REFUSES[merged["machine"]] & merged["original"] & merged["kept"]).sum())
    told = [
        f"A machine labelled {several(total, 'pair')} that nobody was asked about"
        f"{'' if data.audit is None else ' outside the audit'}: {several(yes, 'match', 'matches')}, {no:,} no match. "
        "Where they count they are marked `machine` in `positives.parquet` and `negatives.parquet`, "
        "with the label and its calibrated probability; no column of people's answers holds them."
    ]
    bound = data.machine
    if bound is not None:
        told.append(
            f"With {bound.confidence:.12g} confidence no more of them are wrong{_LOSSES.get(bound.loss, '')} than "
            + "; ".join(
                f"{percent_at_most(part.bound)} of {several(part.labelled, 'pair')} of '{plain(part.name)}', by a "
                f"random sample of {part.sampled:,} that people answered"
                for part in bound.parts
                if part.labelled
            )
            + "."
        )
        told.append(siding_told(bound))
    told.append(
        "The bound holds for all of them together, not for each kind of pair. An answer of people or an earlier "
        "rating beats such a label."
    )
    if data.rules.with_originals:
        told.append(
            "So does the original annotation: where a machine calls an original pair no match, the pair stays and is "
            f"among the conflicts ({stand:,} here), because these few labels may be wrong far more often than the "
            "bound says of all."
        )
    told.append("`mitl build-dataset --humans-only` builds the release without them.")
    return " ".join(told)
