"""Ways to go on, side by side: what each costs and takes of people, what it keeps, and what no threshold can do.

The candidates that are left come first, and the answers as the sample that the options are estimated from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.analysis.report.loop_plots import Curve
from mitl.audits.frontier import TOLERATED, BoundedLabelling, Frontier, Pilot, ResampledEstimate, estimate
from mitl.audits.thresholds import MOST_SIDING, Tolerance
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.core.arrays import Floats, Ints, contains, distinct, places
from mitl.core.formats import percent
from mitl.crowd.context import Context
from mitl.errors import AuditError, TooFewAnswersError, UsageError
from mitl.fusion.models import pilot_scores, rank_features
from mitl.records import Direction, Environment, HitState, several
from mitl.stages.analysing.snapshot import ProjectSnapshot, query_and_item
from mitl.stages.auditing.hit_price import HitPrice, latest_wording, price_of
from mitl.stages.fusing.scores import fused_scores

BANDS = 10
"""Of equally many candidates by score, within which answers that are no random sample are weighted."""
ALIKE = 0.001
"""Below this p-value the answered pairs differ in their scores from the others."""
_QUERY_BITS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """All candidate pairs of an environment, with what people answered on some."""

    pairs: Ints
    """(N,) packed, ascending."""
    queries: Ints
    """(N,) one number for the query that proposed each: its image if an image did, else its caption."""
    answered: Ints
    """(n,) places of those with a usable answer."""
    matches: NDArray[np.bool_]
    """(n,) whether people called each a match."""
    drawn: NDArray[np.bool_]
    """(n,) whether it was asked at random: on a page of a pilot, or in a sample for labels."""

    @property
    def open(self) -> int:
        """Candidates without an answer."""
        return len(self.pairs) - len(self.answered)


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """A pilot that the frontier can be estimated from, and how far it is a random sample."""

    pilot: Pilot
    scored_by: str
    """``fusion``, or ``annotators`` where the answers themselves taught what ranks are worth."""
    random: bool
    """Whether each answered pair was drawn at random."""
    note: str
    """In one line."""


def candidates(project: ProjectSnapshot, sampled: Collection[int] = ()) -> Candidates:
    """The candidates of a project that is read already.

    Args:
        sampled: packed pairs of samples that were drawn at random for machine labels.

    Raises:
        TooFewAnswersError: nobody was asked.
        AuditError: nothing was proposed, or nobody answered.
    """
    asked = project.askable
    pairs = distinct(asked["pair"].to_numpy())
    if not len(pairs):
        raise AuditError("no candidate pair to plan for; run `mitl propose`")
    if project.answers.empty:
        if not project.hits:
            raise TooFewAnswersError("nobody has answered a candidate yet")
        out = any(hit.state is HitState.POSTED for hit in project.hits)
        then = "run `mitl harvest`" if out else "`mitl status` says what comes first"
        raise AuditError(f"no candidate has a usable answer yet; {then}")
    queries = np.full(len(pairs), -1, np.int64)
    for number, direction in reversed(list(enumerate(Direction))):
        of_way = asked.loc[asked["direction"] == number, "pair"].to_numpy()
        queries[places(pairs, of_way)] = (number << _QUERY_BITS) + query_and_item(of_way, direction)[0]
    at = places(pairs, project.answered)
    is_candidate = at >= 0
    if not is_candidate.any():
        raise TooFewAnswersError("no answer is on a candidate, so nothing is known of them")
    labels = contains(project.positive, project.answered)
    order = np.argsort(at[is_candidate], kind="stable")
    answered = at[is_candidate][order]
    pilots = {batch.id for batch in project.batches if batch.pilot}
    random = project.candidates.loc[project.candidates["batch"].isin(pilots), "pair"].to_numpy()
    from_samples = np.sort(np.fromiter(sampled, np.int64, len(sampled)))
    drawn = contains(distinct(random), pairs[answered]) | contains(from_samples, pairs[answered])
    return Candidates(pairs, queries, answered, labels[is_candidate][order], drawn)


def sample(project: ProjectSnapshot, found: Candidates, fused: pd.DataFrame | None, seed: int) -> Sampled:
    """The answers as a pilot, weighted where they are no random sample.

    Args:
        fused: ``FUSED``; None where nothing was fused.

    Raises:
        TooFewAnswersError: too little is answered to learn what ranks are worth, or open pairs of some scores have no
            answered pair like them.
    """
    if fused is not None and contains(fused["pair"].to_numpy(), found.pairs).all():
        at = places(fused["pair"].to_numpy(), found.pairs)
        probabilities, scored_by = fused["probability"].to_numpy()[at], "fusion"
    else:
        probabilities, scored_by = _by_ranks(project, found, seed), "annotators"
    weights, alike = _weighted(probabilities, found)
    random = alike and bool(found.drawn.all())
    pilot = Pilot(probabilities, found.answered, found.matches, weights, found.queries[found.answered])
    return Sampled(pilot, scored_by, random, _note(found, random=random, alike=alike))


def _by_ranks(project: ProjectSnapshot, found: Candidates, seed: int) -> Floats:
    matches = int(found.matches.sum())
    if not 0 < matches < len(found.answered):
        raise TooFewAnswersError(
            f"people called {matches} of {several(len(found.answered), 'answered candidate')} a match, so nothing "
            "tells what a rank is worth"
        )
    rows = project.askable
    annotator = rows["annotator"].cat.set_categories([row.name for row in project.annotators]).cat.codes
    features = rank_features(
        annotator.to_numpy(np.int64) * len(Direction) + rows["direction"].to_numpy(),
        places(found.pairs, rows["pair"].to_numpy()),
        rows["rank"].to_numpy(np.int64),
        rows["similarity"].to_numpy(),
        len(found.pairs),
    )
    return pilot_scores(features, found.queries, found.answered, found.matches, seed)


def _weighted(probabilities: Floats, found: Candidates) -> tuple[Floats, bool]:
    """(n,) how many candidates each answer stands for, and whether the answered are like the others by score.

    Those that were drawn at random stand for all alike, unless candidates have come since that are not like them.
    """
    from scipy.stats import chi2_contingency

    even = np.full(len(found.answered), len(found.pairs) / len(found.answered))
    if not found.open:
        return even, True
    order = np.argsort(probabilities, kind="stable")
    band = np.empty(len(order), np.int64)
    for number, part in enumerate(np.array_split(order, BANDS)):
        band[part] = number
    sizes = np.bincount(band, minlength=BANDS)
    answered = np.bincount(band[found.answered], minlength=BANDS)
    table = np.stack([answered, sizes - answered])[:, sizes > 0]
    alike = bool(chi2_contingency(table).pvalue >= ALIKE)
    if alike and found.drawn.all():
        return even, True
    bare = np.flatnonzero((answered == 0) & (sizes > 0))
    if len(bare):
        raise TooFewAnswersError(
            f"the answered pairs are no random sample of the candidates, and {len(bare)} of {BANDS} bands of scores "
            f"hold none of them, so nothing is known of {int(sizes[bare].sum()):,} pairs there"
        )
    return (sizes / np.maximum(answered, 1))[band[found.answered]], alike


def _note(found: Candidates, *, random: bool, alike: bool) -> str:
    answers = several(len(found.answered), "answered candidate")
    if random:
        return f"it rests on {answers}, drawn at random"
    by_chance = int(found.drawn.sum())
    said = f"it rests on {answers}, of which {by_chance:,} were drawn at random; "
    if alike:
        return (
            said
            + "by score they are like the others, and each stands for the candidates of its tenth of the scores"
        )
    return said + (
        "by score they are not like the others, so each stands for the candidates of its tenth of the scores: a guess, "
        "until more are asked at random"
    )


SAMPLE_SIZES = (60, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400)
RISK = 0.05
POINTS = 41


@dataclass(frozen=True, slots=True)
class PlanWish:
    """What a plan should reach."""

    target_recall: float = 0.95
    """Share of the candidates' matches that is to be kept, above 0, at most 1."""
    max_error: float = 0.01
    """Tolerated machine yes that are no match, as a share of the matches kept, and share of the open pairs that may get
    a wrong machine label under a bound; from 0, below 1."""
    siding: float = 0.1
    """Share of the workers, at most, who side with the machine where it is wrong, 0 to 1/2, as for `mitl label`."""
    budget_cents: int | None = None
    template: str | None = None
    reward_cents: int | None = None
    assignments: int = 1

    @property
    def tolerated(self) -> tuple[float, float]:
        """Lost recall and wrong matches."""
        return round(1 - self.target_recall, 9), self.max_error

    def __post_init__(self) -> None:
        if not 0 < self.target_recall <= 1:
            raise UsageError(
                f"--target-recall is {self.target_recall:g}; give a share above 0, at most 1, as 0.95"
            )
        if not 0 <= self.max_error < 1:
            raise UsageError(f"--max-error is {self.max_error:g}; give a share from 0, below 1, as 0.01")
        if not 0 <= self.siding <= MOST_SIDING:
            raise UsageError(f"--siding is {self.siding:g}; give a share from 0 to 0.5, as 0.1")


@dataclass(frozen=True, slots=True)
class WayToGoOn:
    """One way to go on."""

    key: str
    name: str
    answers: ResampledEstimate
    recall: ResampledEstimate
    wrong: ResampledEstimate
    sample: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedWays:
    """All that was found."""

    environment: Environment
    found: Candidates
    sampled: Sampled
    frontier: Frontier
    price: HitPrice
    wish: PlanWish
    options: tuple[WayToGoOn, ...]
    curves: tuple[Curve, ...]

    def option(self, key: str) -> WayToGoOn | None:
        """The option of that key, where it can be had."""
        return next((way for way in self.options if way.key == key), None)

    @property
    def saves(self) -> bool:
        """Whether machine labels under a bound spare people a tenth of the answers."""
        bounded = self.option("bounded_labels")
        return bounded is not None and bounded.answers.value <= 0.9 * self.frontier.open

    @property
    def prevalence(self) -> float:
        """Expected share of matches among all candidates."""
        return self.frontier.matches.value / len(self.found.pairs)


def make_plan(context: Context, project: ProjectSnapshot, found: Candidates, wish: PlanWish) -> PlannedWays:
    """Estimate the frontier and price it."""
    seed = context.settings.seed
    sampled = sample(project, found, fused_scores(context), seed)
    frontier = estimate(sampled.pilot, seed=seed)
    campaign = Campaign(
        context.environment,
        template=latest_wording(context) if wish.template is None else wish.template,
        reward_cents=wish.reward_cents,
        assignments=wish.assignments,
    )
    price = price_of(context, campaign)
    return PlannedWays(
        environment=context.environment,
        found=found,
        sampled=sampled,
        frontier=frontier,
        price=price,
        wish=wish,
        options=_options(frontier, wish),
        curves=_curves(frontier, wish),
    )


def _exact(value: float) -> ResampledEstimate:
    return ResampledEstimate(value, value, value)


def _options(frontier: Frontier, wish: PlanWish) -> tuple[WayToGoOn, ...]:
    lost = wish.tolerated[0]
    target, error = _exact(wish.target_recall), _exact(wish.max_error)
    options = [
        WayToGoOn("exhaustive", "everything is asked", _exact(frontier.open), _exact(1.0), _exact(0.0)),
        WayToGoOn(
            "score_only", "the top of the score is asked", frontier.people(lost, 0.0), target, _exact(0.0)
        ),
    ]
    if wish.max_error > 0:
        options.append(
            WayToGoOn(
                "two_thresholds",
                "machine labels, thresholds known (no sample)",
                frontier.people(lost, wish.max_error),
                target,
                error,
            )
        )
        best = best_labelling(frontier, Tolerance(wish.max_error, RISK, wish.siding))
        if best is not None:
            options.append(
                WayToGoOn(
                    "bounded_labels",
                    "machine labels under a bound",
                    best.people,
                    best.recall,
                    best.wrong,
                    best.sample,
                )
            )
    return tuple(options)


def best_labelling(frontier: Frontier, tolerance: Tolerance) -> BoundedLabelling | None:
    """Machine labels under a bound at the size of sample that leaves least to people; None where none passes."""
    labellings = [
        labelling
        for size in SAMPLE_SIZES
        if size <= frontier.open
        for labelling in [frontier.labelling(size, tolerance)]
        if labelling is not None
    ]
    return min(labellings, key=lambda labelling: labelling.people.value, default=None)


def _curves(frontier: Frontier, wish: PlanWish) -> tuple[Curve, ...]:
    answers = np.linspace(0, frontier.open, POINTS)
    kinds = [("score_only", "people alone, by score", 0.0)]
    if wish.max_error > 0:
        share = f"{100 * wish.max_error:g} %"
        kinds.append(("two_thresholds", f"machine labels, {share} of the matches wrong", wish.max_error))
    curves = []
    for key, name, wrong in kinds:
        recall = [(part.value, part.low, part.high) for part in frontier.recall(answers, wrong)]
        curves.append(Curve(key, name, tuple(answers.tolist()), *zip(*recall, strict=True)))
    return tuple(curves)


PARTS = ((0.75, "three quarters"), (0.5, "half"), (0.25, "a quarter"))


def not_reachable(planned: PlannedWays) -> list[str]:
    """What these scores cannot do, and what they can, in words."""
    frontier, wish = planned.frontier, planned.wish
    said = []
    for lost, wrong in dict.fromkeys([TOLERATED[0], planned.wish.tolerated]):
        need = frontier.people(lost, wrong)
        share = ResampledEstimate(*(value / frontier.open for value in (need.value, need.low, need.high)))
        said.append(
            f"at an AUC of {frontier.auc.value:.3f}, {100 * lost:.3g} % lost recall and {100 * wrong:.3g} % wrong "
            f"matches need people on {in_percent(share)} of the open pairs: {_verdict(share)}"
        )
    bounded = planned.option("bounded_labels")
    if wish.max_error > 0 and bounded is None:
        said.append(
            f"a bound of {100 * wish.max_error:g} % wrong machine labels is not reachable with a sample of the "
            f"{frontier.open:,} open pairs"
        )
    elif bounded is not None and not planned.saves:
        said.append(
            f"machine labels under a bound of {100 * wish.max_error:g} % would save less than a tenth of the answers: "
            "ask everything, or first better the scores (more annotators, `mitl fuse`)"
        )
    return said


def _verdict(share: ResampledEstimate) -> str:
    """What part of the answers is certainly not enough, and what part certainly is."""
    short = [words for part, words in PARTS if part < share.low]
    enough = [words for part, words in PARTS if part >= share.high]
    said = [f"{short[0]} of the answers is not reachable"] if short else []
    said += [f"{enough[-1]} of the answers would do"] if enough else []
    return ", ".join(said) or "this pilot is too small to say whether half of the answers would do"


def in_percent(share: ResampledEstimate) -> str:
    """``51 % (46–57 %)``."""
    return f"{percent(share.value, 0)} ({100 * share.low:.0f}–{100 * share.high:.0f} %)"
