"""How often the bounds of an audit are wrong, and how far they lie below those that infallible workers would give.

A world is a pool of pairs whose four-level truth is known, a release that one answer a pair has made of what scores
proposed, strata by these scores, and a crowd. Each draw samples the strata and has every pair answered as in the real
loop: pages of one worker each, with controls; a page that fails is asked again of another worker; a first yes, and a
share of first noes, goes to two further ones. A bound misses where it lies above the known recall or precision.

    python benchmarks/audit_coverage.py
    python benchmarks/audit_coverage.py --set rare --draws 100
    python benchmarks/audit_coverage.py --draws 40 --worlds mixed
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from shared_kit import parser_of

from mitl.audits.bounds import AuditEvidence, Counts, RateSource, precision_lower, recall_lower
from mitl.audits.certificate import certify
from mitl.audits.evidence import EXPECTED_REFUSED
from mitl.audits.workers import FEWEST, Errors
from mitl.core.statistics import clopper_pearson
from mitl.crowd.populations import CHARACTERS, parse_population
from mitl.records import AuditPurpose, Label
from mitl.records.audits import AUDITED, HELD, AuditDesign, Stratum
from mitl.records.frames import LABELS, NONE, frame

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

RISK = 0.05
PAGE = 16
"""Audited pairs on a page, beside two controls."""
WORKERS = 40
LOOKS = 5
RECHECK = 0.1
YES, WEAK_YES, WEAK_NO, NO = (LABELS.index(label) for label in Label)
NAMES = tuple(CHARACTERS)
CONFUSION = np.array([CHARACTERS[name].confusion for name in NAMES])  # (C, truth, answer)
PASSES = CONFUSION[:, YES, :WEAK_NO].sum(axis=1) * CONFUSION[:, NO, WEAK_NO:].sum(axis=1)  # both controls
STRATA = ("released", "likely", "proposed", "ranked", "remainder")
SHARES = (0.25, 0.2, 0.15, 0.15, 0.25)
"""Of the sample."""
BOUNDS = (
    "recall, by design",
    "recall, betting",
    "recall, exact",
    "recall, best of looks",
    "recall, any rates",
    "precision",
    "precision, any rates",
)


@dataclass(frozen=True, slots=True)
class World:
    """What is drawn once, and then audited again and again."""

    name: str
    crowd: str
    prevalence: float
    separation: float = 4.0
    """How many standard deviations of the score lie between full matches and pairs that are none."""
    pairs: int = 60_000
    sample: int = 2_000
    simple: bool = False
    """One simple random sample in place of strata."""
    grows: bool = False
    """The release takes in a third of its answers only after the draw."""
    weak: float = 0.35
    """Share of weak matches among matches."""
    near: float = 1.0
    """Near misses for each match."""
    guess: float = 1.0
    """By which factor the expected shares are off."""
    seed: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The pairs of a world, (N,) each."""

    truth: Ints
    stratum: Ints
    label: Ints
    """What one worker had said before; NONE where nobody was asked."""
    held: NDArray[np.bool_]
    known: NDArray[np.bool_]
    workers: Ints
    """(W,) character of each worker."""
    activity: Floats
    """(W,) chance that a page goes to a worker."""
    design: AuditDesign

    @property
    def match(self) -> NDArray[np.bool_]:
        """Whether it is one."""
        return self.truth <= WEAK_YES

    @property
    def recall(self) -> float:
        """Of the release."""
        return float((self.held & self.match).sum() / self.match.sum())

    @property
    def precision(self) -> float:
        """Of the release."""
        return float((self.held & self.match).sum() / self.held.sum())


def worlds() -> Iterator[World]:
    """Three prevalences, three crowds, good and poor scores; then special ones."""
    for number, (prevalence, crowd, (kind, separation)) in enumerate(
        product((0.05, 0.01, 0.001), ("careful", "mixed", "hasty"), (("good", 5.0), ("poor", 3.0)))
    ):
        yield World(
            f"{prevalence:.1%} {crowd}, {kind} scores",
            crowd,
            prevalence,
            separation,
            grows=kind == "poor",
            guess=(0.5, 1.0, 2.0)[number % 3],
            pairs=200_000 if prevalence < 0.01 else 60_000,
            sample=4_000 if prevalence < 0.01 else 2_000,
            seed=number,
        )
    for number, crowd in enumerate(("careful", "mixed", "hasty")):
        yield World(f"5.0% {crowd}, simple sample", crowd, 0.05, simple=True, seed=30 + number)
    yield World("swamped: 0.1% hasty, simple sample", "hasty", 0.001, simple=True, pairs=200_000, seed=40)
    yield World("swamped: 0.1% hasty, few near", "hasty", 0.001, 2.0, pairs=200_000, near=0.2, seed=41)
    yield World("weak matches only, hasty", "hasty", 0.02, weak=1.0, near=2.0, seed=42)
    yield World("weak matches, weak ones missed, mixed", "mixed", 0.02, 3.0, weak=0.7, near=0.1, seed=43)
    yield World("all but the remainder audited, mixed", "mixed", 0.005, pairs=20_000, sample=3_500, seed=44)
    yield World("few audits, mixed", "mixed", 0.05, sample=300, seed=45)


def rare_worlds() -> Iterator[World]:
    """Rare matches in a large remainder, where the false yeses of a few hasty workers are more than the matches."""
    for number, crowd in enumerate(("careful", "careful:0.8,hasty:0.2", "careful:0.5,hasty:0.5")):
        yield World(
            f"0.5% {crowd}", crowd, 0.005, 6.0, pairs=100_000, sample=8_000, near=0.2, seed=60 + number
        )


SETS = {"main": worlds, "rare": rare_worlds}


def make(world: World) -> Pairs:
    """The pairs of a world, and the design of its audits."""
    rng = np.random.default_rng([world.seed, 1])
    N, M = world.pairs, round(world.pairs * world.prevalence)
    truth = np.full(N, NO)
    truth[:M] = np.where(rng.random(M) < world.weak, WEAK_YES, YES)
    truth[M : M + round(M * world.near)] = WEAK_NO
    score = world.separation * np.array([1.0, 0.75, 0.5, 0.0])[truth] + rng.standard_normal(N)
    order = np.argsort(-score)
    workers, activity = crowd_of(world, rng)
    label = np.full(N, NONE)
    asked = order[: 2 * M]
    label[asked] = answers(truth[asked], workers[passing(len(asked), workers, activity, rng)], rng)
    held = (label != NONE) & (label <= WEAK_YES)
    later = np.zeros(N, np.bool_)
    later[asked] = rng.random(len(asked)) < (1 / 3 if world.grows else 0)
    known = held & ~later
    stratum = np.full(N, 4)
    stratum[order[: 6 * M]] = 3
    stratum[asked[M:]] = 2
    stratum[asked[:M]] = 1
    stratum[known] = 0
    match, names, shares = truth <= WEAK_YES, STRATA, np.array(SHARES)
    if world.simple:
        stratum, names, shares = np.zeros(N, np.int64), ("pool",), np.ones(1)
    size = np.bincount(stratum, minlength=len(names))
    sample = np.minimum(np.maximum(np.round(shares * world.sample).astype(int), 1), size)
    missing = np.bincount(stratum[match & ~held], minlength=len(names)) / np.maximum(
        np.bincount(stratum[~held], minlength=len(names)), 1
    )
    strata = tuple(
        Stratum(name, int(N_h), int(n_h), RECHECK, float(min(max(e_h * world.guess, 1e-6), 0.9)))
        for name, N_h, n_h, e_h in zip(names, size, sample, missing, strict=True)
    )
    design = AuditDesign(AuditPurpose.RECALL, world.seed, strata, 1 - RISK, simple=world.simple)
    return Pairs(truth, stratum, label, held, known, workers, activity, design)


def crowd_of(world: World, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Characters of the workers, and how much of the work each takes."""
    names = parse_population(world.crowd).characters(WORKERS, seed=world.seed)
    activity = rng.lognormal(0, 0.7, WORKERS)
    return np.array([NAMES.index(name) for name in names]), activity / activity.sum()


def passing(pages: int, workers: Ints, activity: Floats, rng: np.random.Generator) -> Ints:
    """The worker of each page: others are asked until one passes the controls."""
    drawn = rng.choice(WORKERS, pages, p=activity)
    failed = np.flatnonzero(rng.random(pages) >= PASSES[workers[drawn]])
    while len(failed):
        again = rng.choice(WORKERS, len(failed), p=activity)
        passed = (again != drawn[failed]) & (rng.random(len(failed)) < PASSES[workers[again]])
        drawn[failed] = again
        failed = failed[~passed]
    return drawn


def answers(truth: Ints, characters: Ints, rng: np.random.Generator) -> Ints:
    """What workers of these characters say of pairs of this truth."""
    steps = CONFUSION.cumsum(axis=2)[characters, truth]
    return np.minimum((rng.random(len(truth))[:, None] >= steps).sum(axis=1), NO)


def dealt(wanted: NDArray[np.bool_], pairs: Pairs, rng: np.random.Generator) -> Ints:
    """(B, n) the worker of each wanted answer, page by page; of others nobody."""
    B, n = wanted.shape
    keys = np.where(wanted, rng.random((B, n)), 2.0)
    rank = keys.argsort(axis=1).argsort(axis=1)
    pages = -(-n // PAGE)
    table = passing(B * pages, pairs.workers, pairs.activity, rng).reshape(B, pages)
    return np.take_along_axis(table, rank // PAGE, axis=1)


def others(found: Ints, before: list[Ints], pairs: Pairs, rng: np.random.Generator) -> Ints:
    """The same workers, but for pairs that one of them has answered: those are asked again of others."""
    while (clash := np.logical_or.reduce([found == worker for worker in before])).any():
        found = found.copy()
        found[clash] = passing(int(clash.sum()), pairs.workers, pairs.activity, rng)
    return found


def audit(pairs: Pairs, draws: int, rng: np.random.Generator) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Samples in the order of drawing (B, n), their three answers (3, B, n), and whether a no is rechecked."""
    members = [np.flatnonzero(pairs.stratum == h) for h in range(len(pairs.design.strata))]
    rows = []
    for _ in range(draws):
        picked = [
            m[rng.choice(len(m), s.sample, replace=False)]
            for m, s in zip(members, pairs.design.strata, strict=True)
        ]
        rows.append(rng.permutation(np.concatenate(picked)))
    index = np.stack(rows)
    truth = pairs.truth[index]
    recheck = (rng.random(index.shape) < RECHECK) | pairs.known[index]

    def ask(workers: Ints) -> Ints:
        return answers(truth.reshape(-1), pairs.workers[workers].reshape(-1), rng).reshape(index.shape)

    first = dealt(np.ones(index.shape, np.bool_), pairs, rng)
    one = ask(first)
    wanted = (one <= WEAK_YES) | recheck
    second = others(dealt(wanted, pairs, rng), [first], pairs, rng)
    third = others(dealt(wanted, pairs, rng), [first, second], pairs, rng)
    return index, np.stack([one, *(np.where(wanted, ask(who), NONE) for who in (second, third))]), recheck


def counts(
    index: Ints, marked: NDArray[np.bool_], pairs: Pairs, seen: int, *, held: bool, looks: bool = False
) -> Counts:
    """Counts outside or within the release by the first pairs of each draw."""
    H, B = len(pairs.design.strata), len(index)
    here = pairs.held[index[:, :seen]] == held
    cell = pairs.stratum[index[:, :seen]] + H * np.arange(B)[:, None]
    sampled, *hits = (
        np.bincount(cell[flags], minlength=B * H).reshape(B, H).astype(float)
        for flags in (here, *(here & by[:, :seen] for by in marked))
    )
    size = np.bincount(pairs.stratum[pairs.held == held], minlength=H).astype(float)
    expected = np.full(H, EXPECTED_REFUSED) if held else np.array([s.expected for s in pairs.design.strata])
    cells = pairs.stratum[index] + H * np.arange(B)[:, None]
    planned = np.bincount(cells[pairs.held[index] == held], minlength=B * H).reshape(B, H).astype(float)
    return Counts(
        np.broadcast_to(size, (B, H)),
        sampled,
        np.stack(hits),
        expected,
        planned if looks else None,
    )


def evidence(
    index: Ints, given: Ints, recheck: NDArray[np.bool_], pairs: Pairs, seen: int, *, looks: bool = False
) -> AuditEvidence:
    """What the first pairs of each draw say, by the rules of `mitl.audits.evidence`, for all draws at once."""
    yes = (given != NONE) & (given <= WEAK_YES)
    number = yes.sum(axis=0)
    held, label = pairs.held[index], pairs.label[index]
    thrice = held & recheck
    weak_yes, weak_no = thrice & (label == WEAK_YES), ~held & (label == WEAK_NO)
    weak_yes = np.where(weak_yes.sum(axis=1, keepdims=True) >= FEWEST, weak_yes, thrice)
    weak_yes = weak_yes & yes[1:].any(axis=0)
    weak_no = weak_no & (weak_no.sum(axis=1, keepdims=True) >= FEWEST)
    early = np.arange(index.shape[1]) < seen
    return AuditEvidence(
        counts(index, np.stack([yes[0] & (number >= 2), number == 3]), pairs, seen, held=False, looks=looks),
        counts(index, np.stack([number < 2, number == 0]), pairs, seen, held=True, looks=looks),
        Errors((weak_yes & early & ~yes[0]).sum(axis=1), (weak_yes & early).sum(axis=1)),
        Errors((weak_no & early & yes[0]).sum(axis=1), (weak_no & early).sum(axis=1)),
    )


def as_if_right(index: Ints, yes: NDArray[np.bool_], pairs: Pairs) -> Floats:
    """The recall bound of whoever takes one answer a pair for the truth."""
    n = index.shape[1]
    told = AuditEvidence(
        counts(index, yes[None], pairs, n, held=False),
        counts(index, ~yes[None], pairs, n, held=True),
        Errors(0, 0),
        Errors(0, 0),
    )
    return recall_lower(told, RISK, rates=RateSource.NONE).lower


def bounded(world: World, draws: int) -> dict[str, Floats]:
    """(draws,) each bound of every draw, with the truth beside them."""
    pairs = make(world)
    rng = np.random.default_rng([world.seed, 2])
    index, given, recheck = audit(pairs, draws, rng)
    n = index.shape[1]
    told = evidence(index, given, recheck, pairs, n)
    looks = [
        recall_lower(
            evidence(index, given, recheck, pairs, n * (look + 1) // LOOKS, looks=True),
            RISK,
            method="betting",
            anytime=True,
        ).lower
        for look in range(LOOKS)
    ]
    found = {
        "recall, by design": recall_lower(told, RISK).lower,
        "recall, betting": recall_lower(told, RISK, method="betting").lower,
        "recall, exact": recall_lower(told, RISK, method="exact").lower,
        "recall, best of looks": np.max(looks, axis=0),
        "recall, any rates": recall_lower(told, RISK, rates=RateSource.WORST).lower,
        "precision": precision_lower(told, RISK).lower,
        "precision, any rates": precision_lower(told, RISK, rates=RateSource.WORST).lower,
        "perfect answers": as_if_right(index, pairs.match[index], pairs),
        "one answer believed": as_if_right(index, given[0] <= WEAK_YES, pairs),
        "true recall": np.full(draws, pairs.recall),
        "true precision": np.full(draws, pairs.precision),
        "answers": (given != NONE).sum(axis=(0, 2)).astype(float),
    }
    check(pairs, index[0], given[:, 0], recheck[0], found)
    return found


def check(
    pairs: Pairs, index: Ints, given: Ints, recheck: NDArray[np.bool_], found: dict[str, Floats]
) -> None:
    """The certificate of the first draw, from frames, states the same bounds."""
    inclusion = np.array([stratum.inclusion for stratum in pairs.design.strata])
    audited = frame(
        AUDITED,
        {
            "pair": index,
            "place": np.arange(1, len(index) + 1),
            "stratum": pairs.stratum[index],
            "inclusion": inclusion[pairs.stratum[index]],
            "recheck": recheck,
            "known": pairs.known[index],
            **dict(zip(("first", "second", "third"), given, strict=True)),
        },
    )
    held = np.flatnonzero(pairs.held)
    asked = np.flatnonzero(pairs.label != NONE)
    certificate = certify(
        audited,
        pairs.design,
        frame(HELD, {"pair": held, "stratum": pairs.stratum[held]}),
        pd.DataFrame({"pair": asked, "label": pairs.label[asked].astype(np.int8)}),
    )
    told = {
        "recall, by design": certificate.measured.recall,
        "recall, any rates": certificate.worst.recall,
        "precision": certificate.measured.precision,
        "precision, any rates": certificate.worst.precision,
    }
    for name, value in told.items():
        assert abs(found[name][0] - value) < 1e-9, (name, found[name][0], value)


def truth_of(name: str, found: dict[str, Floats]) -> Floats:
    """What a bound is a bound of."""
    return found["true precision" if name.startswith("precision") else "true recall"]


def print_worlds(results: dict[str, dict[str, Floats]]) -> None:
    """A row for each world: truth, the median bounds and how many of them miss."""
    print("| world | answers | recall | " + " | ".join(BOUNDS) + " | perfect answers | one answer believed |")
    print("| --- |" + " ---: |" * (len(BOUNDS) + 4))
    for world, found in results.items():
        cells = []
        for name in (*BOUNDS, "perfect answers", "one answer believed"):
            missed = int((found[name] > truth_of(name, found) + 1e-12).sum())
            cells.append(f"{np.median(found[name]):.3f} ({missed})")
        print(
            f"| {world} | {np.median(found['answers']):,.0f} | {found['true recall'][0]:.3f} | "
            + " | ".join(cells)
            + " |"
        )


def print_bounds(results: dict[str, dict[str, Floats]]) -> None:
    """A row for each bound: how often it misses over all worlds and in the worst of them, and its slack."""
    print("| bound | missed | of | share | 95 % interval | worst world | median slack |")
    print("| --- | ---: | ---: | ---: | --- | ---: | ---: |")
    for name in BOUNDS:
        missed = {world: (found[name] > truth_of(name, found) + 1e-12) for world, found in results.items()}
        hits, trials = (sum(int(f(m)) for m in missed.values()) for f in (np.sum, len))
        low, high = clopper_pearson(hits, trials, 0.95)
        worst = max(missed.values(), key=np.mean)
        slack = "–"
        if name.startswith("recall"):
            slack = (
                f"{np.median(np.concatenate([f['perfect answers'] - f[name] for f in results.values()])):.3f}"
            )
        print(
            f"| {name} | {hits} | {trials:,} | {hits / trials:.4f} | {low:.4f} to {high:.4f} | "
            f"{worst.mean():.4f} | {slack} |"
        )


def run(job: tuple[World, int]) -> tuple[str, dict[str, Floats]]:
    """One world, in a process of its own."""
    world, draws = job
    return world.name, bounded(world, draws)


def main() -> None:
    """Draw, bound, print."""
    parser = parser_of(__doc__)
    parser.add_argument("--draws", type=int, default=400, help="of each world")
    parser.add_argument("--set", choices=SETS, default="main")
    parser.add_argument("--worlds", default="", help="only those whose name holds this")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    start = time.perf_counter()
    jobs = [(world, asked.draws) for world in SETS[asked.set]() if asked.worlds in world.name]
    with ProcessPoolExecutor(asked.jobs) as processes:
        results = {}
        for name, found in processes.map(run, jobs):
            results[name] = found
            print(f"{time.perf_counter() - start:.0f} s: {name}", file=sys.stderr)
    print(f"{len(jobs)} worlds, {asked.draws} draws each, risk {RISK:g}\n")
    print_bounds(results)
    print("\nMedian bound, and in brackets how many of the draws miss.\n")
    print_worlds(results)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
