"""How often too many labels are wrong: the faulty rules of a small sample, and ours, over many drawn audits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from mitl.audits.thresholds import Drawn, Tolerance, find_threshold, find_threshold_of_loss
from mitl.core.statistics import clopper_pearson

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SIZE, MACHINE_ERROR = 4000, 0.059
TOLERANCE = Tolerance(error=0.02, risk=0.05)
RUNS = 300


def population(seed: int) -> tuple[Floats, Flags]:
    """Uncertainties of 4,000 pairs, and which machine labels are wrong: 5.9 %, the unsurer the likelier."""
    rng = np.random.default_rng(seed)
    uncertainty = rng.random(SIZE) / 2
    chance = uncertainty**2
    return uncertainty, rng.random(SIZE) < chance * (MACHINE_ERROR / chance.mean())


def asymptotic(uncertainty: Floats, audited: NDArray[np.int64], wrong: Flags) -> float:
    """The largest cut under which mean + z · sd / √m stays within the tolerated error: normal, whatever m is."""
    cuts = np.append(np.sort(uncertainty), np.inf)
    loss = wrong[:, None] & (uncertainty[audited][:, None] < cuts)
    z = norm.ppf(1 - TOLERANCE.risk)
    upper = loss.mean(axis=0) + z * loss.std(axis=0) / np.sqrt(len(audited))
    passing = np.flatnonzero(upper <= TOLERANCE.error)
    return float(cuts[passing[-1]])


def accepting_on_failure(uncertainty: Floats, audited: NDArray[np.int64], wrong: Flags) -> float:
    """An exact test of each cut, whose search ends at the last cut where none passes."""
    found = find_threshold(uncertainty, Drawn(len(uncertainty), audited), wrong, TOLERANCE)
    return float(uncertainty.max()) if found.refused else found.cut


def exact(uncertainty: Floats, audited: NDArray[np.int64], wrong: Flags) -> float:
    """Ours."""
    return find_threshold(uncertainty, Drawn(len(uncertainty), audited), wrong, TOLERANCE).cut


def share_broken(rule: Callable[[Floats, NDArray[np.int64], Flags], float], sample: int) -> float:
    """In how many runs more than the tolerated share of all pairs carries a wrong machine label."""
    broken = 0
    for run in range(RUNS):
        uncertainty, wrong = population(run)
        audited = np.random.default_rng([run, sample]).choice(SIZE, sample, replace=False)
        labelled = uncertainty < rule(uncertainty, audited, wrong[audited])
        labelled[audited] = False
        broken += (wrong & labelled).mean() > TOLERANCE.error
    return broken / RUNS


def test_a_normal_bound_at_60_audits_breaks_its_promise_many_times_too_often() -> None:
    """Six times the risk: where no error was drawn yet, its spread is taken to be none."""
    assert share_broken(asymptotic, 60) > 5 * TOLERANCE.risk


def test_a_search_that_accepts_where_no_threshold_passes_breaks_it_nearly_always() -> None:
    """At 60 audits no threshold can pass."""
    assert share_broken(accepting_on_failure, 60) > 0.95


@pytest.mark.parametrize("sample", [60, 150, 200, 400, 800])
def test_the_exact_sequential_rule_keeps_its_promise(sample: int) -> None:
    """The lower end of what is compatible with the runs does not exceed the risk; at 60 audits nothing is labelled."""
    broken = share_broken(exact, sample)
    assert clopper_pearson(broken * RUNS, RUNS, 0.99)[0] <= TOLERANCE.risk
    if sample == 60:
        assert broken == 0


def test_it_is_not_kept_by_labelling_nothing() -> None:
    """With 400 audits some half of the pairs is labelled."""
    uncertainty, wrong = population(0)
    audited = np.random.default_rng(0).choice(SIZE, 400, replace=False)
    assert (
        0.3
        < find_threshold(uncertainty, Drawn(len(uncertainty), audited), wrong[audited], TOLERANCE).labelled
        / SIZE
        < 0.7
    )


@pytest.mark.parametrize("sample", [300, 800])
def test_the_mean_loss_keeps_its_promise(sample: int) -> None:
    """Losses of one, two and three thirds, as levels are off."""
    broken = 0
    for run in range(RUNS):
        uncertainty, wrong = population(run)
        rng = np.random.default_rng([run, sample])
        loss = wrong * rng.choice([1 / 3, 2 / 3, 1.0], SIZE)
        audited = rng.choice(SIZE, sample, replace=False)
        found = find_threshold_of_loss(
            uncertainty, Drawn(len(uncertainty), audited), loss[audited], TOLERANCE
        )
        labelled = uncertainty < found.cut
        labelled[audited] = False
        broken += float((loss * labelled).mean()) > TOLERANCE.error
    assert clopper_pearson(broken, RUNS, 0.99)[0] <= TOLERANCE.risk


@pytest.mark.parametrize("accepts", [0.5, 0.75, 0.9])
def test_errors_that_workers_overlook_are_reckoned_with(accepts: float) -> None:
    """One worker first, two more where they contradict the machine: without ``siding`` the promise is about what this
    shows; with the share of those who side with the machine it is about all errors."""
    broken = {0.0: 0, 1 - accepts: 0}
    for run in range(RUNS):
        uncertainty, wrong = population(run)
        rng = np.random.default_rng([run, 7])
        audited = rng.choice(SIZE, 800, replace=False)
        said = rng.random((3, 800)) < np.where(wrong[audited], accepts, 0.02)
        shown = said[0] & (said[1] | said[2])
        for siding in broken:
            tolerance = Tolerance(TOLERANCE.error, TOLERANCE.risk, siding)
            labelled = (
                uncertainty
                < find_threshold(uncertainty, Drawn(len(uncertainty), audited), shown, tolerance).cut
            )
            labelled[audited] = False
            broken[siding] += (wrong & labelled).mean() > TOLERANCE.error
    assert clopper_pearson(broken[1 - accepts], RUNS, 0.99)[0] <= TOLERANCE.risk
    if accepts <= 0.75:
        assert broken[0.0] / RUNS > TOLERANCE.risk
