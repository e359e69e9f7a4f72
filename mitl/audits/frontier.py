"""What people must still judge: the frontier of human answers, lost recall and wrong machine labels."""

from __future__ import annotations

import math

from mitl.errors import AuditError


def share_left(auc: float, lost: float, wrong: float, prevalence: float) -> float:
    """Share of pairs that people must still judge, with ideal thresholds, where only a score's AUC is known.

    Scores are normal with equal variance among matches and others, their means sqrt(2) Phi^-1(AUC) apart. The machine
    says no below the score that only ``lost`` of the matches miss, and yes above the one that lets in as many others
    as ``wrong`` of the matches that are kept; people judge what lies between. It is the best that any two thresholds
    can do, audits apart: calibration changes no AUC.

    Args:
        auc: chance that a match scores above another pair, 0.5 to 1.
        lost: tolerated share of the matches that become a no, from 0, below 1.
        wrong: tolerated machine yes that are no match, as a share of the matches kept, from 0.
        prevalence: share of matches among the pairs, between 0 and 1.

    Raises:
        AuditError: a number lies outside its range.
    """
    from scipy.special import ndtr, ndtri

    _check_share("the AUC", auc, 0.5, 1.0)
    _check_share("the lost recall", lost, 0.0, 1.0)
    _check_share("the wrong labels", wrong, 0.0, 1.0)
    _check_share("the share of matches", prevalence, 0.0, 1.0)
    if auc == 1 or lost == 1 or prevalence in (0, 1):
        return 0.0
    apart = math.sqrt(2) * float(ndtri(auc))
    low = apart + float(ndtri(lost))
    high = -float(ndtri(min(1.0, wrong * prevalence * (1 - lost) / (1 - prevalence))))
    if high <= low:
        return 0.0
    others = float(ndtr(high) - ndtr(low))
    matches = float(ndtr(high - apart) - ndtr(low - apart))
    return (1 - prevalence) * others + prevalence * matches


def _check_share(what: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also what is not a number
        raise AuditError(f"{what} is {value:g}; it should be from {low:g} to {high:g}")
