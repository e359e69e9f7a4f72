"""What a methods section says of the people: what they were asked, how they were checked and what they were paid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mitl.core.pricing import format_dollars
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.positives.markdown import listed
from mitl.positives.methods_facts import Cite, Facts, Sentence
from mitl.positives.release_input import BatchPay, CrowdSummary
from mitl.records import Environment, several


def annotation(of: Facts) -> Iterator[Sentence]:
    """How people judged the candidates; nothing where nobody did."""
    data, summary, origins = of.data, of.summary, of.data.origins
    if not summary.judgements:
        return
    if origins.batches:
        yield (
            f"In {several(of.hits, 'HIT')} of {several(len(origins.batches), 'batch', 'batches')}, each of up to "
            f"{CANDIDATES_PER_HIT} pairs and two controls, {_asked(origins.batches)} chose for each pair one of four "
            "answers, yes, weak yes, weak no or no.",
        )
    if data.environment is Environment.SANDBOX and origins.batches:
        yield (
            "All of it was practice on a sandbox, where nobody is owed money and scripted workers may answer: its "
            "figures describe no people.",
        )
    if origins.crowd is not None:
        yield (_workers(origins.crowd),)
    if origins.controls is not None:
        controls = origins.controls
        withdrawn = (
            f"; {several(controls.withdrawn, 'control')} that workers of good record failed "
            f"{'was' if controls.withdrawn == 1 else 'were'} withdrawn"
            if controls.withdrawn
            else ""
        )
        yield (
            f"Of the controls, {controls.positive.text} on known matches and {controls.negative.text} on known "
            f"non-matches were answered as expected{withdrawn}.",
        )
    pay = origins.pay
    if pay is not None:
        yield (_paid(of),)
    yield (
        f"This gave {several(summary.judgements, 'answer')}, {summary.usable:,} of them usable, on "
        f"{several(summary.pairs_judged, 'pair')}.",
    )
    agreed = summary.agreement
    if agreed.alpha.alpha is not None:
        interval = (
            f", 95 % bootstrap interval {agreed.alpha.low:.3f} to {agreed.alpha.high:.3f}"
            if agreed.has_interval
            else ""
        )
        yield (
            "Krippendorff's alpha (ordinal)",
            Cite(("krippendorff2011alpha",)),
            f" is {agreed.alpha.alpha:.3f}{interval}, over {several(agreed.pairs, 'pair')} that two people or more "
            "answered.",
        )
    for work in origins.past_work:
        yield (
            f"{several(work.submissions, 'submission')} of earlier work (batch {work.batch}) were read from files; how "
            "their workers were recruited and paid is not known here.",
        )
    for stated in (data.card.pay, data.card.ethics):
        if stated:
            yield (stated.rstrip(".") + ".",)
    for what, hits in of.other_work:
        yield _OTHER[what](hits) if what in _OTHER else (f"{several(hits, 'HIT')} asked for {what}.",)


def _ranked(hits: int) -> Sentence:
    return (
        f"{several(hits, 'HIT')} asked which of two rankings of one query is better; preferences are scored by the "
        "model of Bradley and Terry",
        Cite(("bradley1952",)),
        ".",
    )


def _rated(hits: int) -> Sentence:
    return (
        f"{several(hits, 'HIT')} asked how alike two items are, from 0 to 5, as Crisscrossed Captions does",
        Cite(("parekh2021cxc",)),
        ".",
    )


_OTHER = {"rankings": _ranked, "similarity": _rated}


def _asked(batches: Sequence[BatchPay]) -> str:
    each = sorted({batch.assignments for batch in batches})
    if each == [1]:
        return "one worker"
    return f"{each[0]} workers each" if len(each) == 1 else f"{each[0]} to {each[-1]} workers each"


def _workers(crowd: CrowdSummary) -> str:
    fates = [
        (crowd.used, "accepted"),
        (crowd.paid_unused, "paid and not used"),
        (crowd.rejected, "rejected"),
        (crowd.undecided, "not decided"),
    ]
    told = listed([f"{count:,} {fate}" for count, fate in fates if count])
    limit = crowd.max_hits_per_worker
    capped = "" if limit is None else f", of at most {several(limit, 'HIT')} each"
    excluded = (
        f" {several(crowd.excluded, 'worker')} {'was' if crowd.excluded == 1 else 'were'} excluded from further work."
        if crowd.excluded
        else ""
    )
    made = f"{several(crowd.workers, 'worker')} made {several(crowd.submissions, 'submission')}{capped}"
    return f"{made}: {told}.{excluded}"


def _paid(of: Facts) -> str:
    origins = of.data.origins
    pay = origins.pay
    assert pay is not None
    rewards = sorted({batch.reward_cents for batch in origins.batches})
    each = (
        " to ".join(format_dollars(cents) for cents in dict.fromkeys([rewards[0], rewards[-1]]))
        if rewards
        else ""
    )
    parts = [f"a HIT paid {each}"] if each else []
    if pay.median_hourly_cents is not None:
        parts.append(
            f"an hour of active time {format_dollars(pay.median_hourly_cents)} in the median over workers"
        )
    if pay.floor_cents:
        parts.append(
            f"{pay.workers_under:,} of {several(pay.timed_workers, 'worker')} of known time earned less than the floor "
            f"of {format_dollars(pay.floor_cents)} an hour"
        )
    total = format_dollars(pay.rewards_cents + pay.bonuses_cents + pay.fees_cents)
    total += " of practice money" if of.data.environment is Environment.SANDBOX else ""
    told = listed(parts)
    return (
        f"{told[:1].upper()}{told[1:]}; in all {total} were paid, fees included."
        if told
        else f"In all {total} were paid."
    )
