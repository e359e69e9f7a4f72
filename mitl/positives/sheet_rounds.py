"""What the files of a release say of rounds that chose pairs, and of annotators that learnt between them."""

from __future__ import annotations

from mitl.positives.markdown import plain
from mitl.positives.release_input import Origins, TrainedMachine
from mitl.records import several


def unproposed(origins: Origins) -> str:
    """Whom nobody was asked about, but for samples: how a sentence on it begins."""
    chosen = " and no round chose" if origins.rounds else ""
    return f"Pairs that no machine annotator proposed{chosen}"


def rounds_told(origins: Origins) -> list[str]:
    """A sentence for each round; none without rounds."""
    return [
        f"Round {one.number} chose {several(one.pairs, 'pair')} to ask, by the strategy {one.strategy}"
        f"{', and was taken back later; its answers count' if one.rolled_back else ''}."
        for one in origins.rounds
    ]


def learnt(machine: TrainedMachine) -> str:
    """How an annotator came to its weights, without a full stop."""
    when = "" if machine.round is None else f" in round {machine.round}"
    collected = f" ({machine.collected:,} of them collected here)" if machine.collected else ""
    return (
        f"trained{when} from {machine.base} on {several(machine.answers, 'answer')} on "
        f"{several(machine.pairs, 'pair')} and on originals{collected}, weights SHA-256 {machine.weights_sha256}"
    )


def training_told(origins: Origins) -> list[str]:
    """A sentence for each annotator that learnt here and proposed; none without them."""
    return [f"{plain(one.name)}: {plain(learnt(one))}." for one in origins.trained]
