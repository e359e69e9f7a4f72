"""Harvesting again and again until nobody works any more: `mitl harvest --watch`."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mitl.campaign.standing import keep_standings
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import open_work
from mitl.errors import CrowdError, FundsError, OutageError
from mitl.records import Environment, StageResult, several
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import HarvestCounts, Harvested, harvest_once

EVERY_S = 30.0
"""Seconds between two looks while answers come in."""
SLOWEST = 16
"""Times that interval; so rare do the looks become while nothing new comes."""
MAX_FAILURES = 20
"""Looks in a row that may fail before the watch gives up; the last ones are minutes apart."""
_RECENT = 50
"""The newest submissions, from which the rate is taken."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """How far the work that is out has come."""

    submissions: int
    """Stored so far."""
    to_come: int
    remaining: dt.timedelta | None
    """At the rate of the newest submissions; None while there is none."""

    @property
    def text(self) -> str:
        """In words."""
        text = f"{self.submissions:,} submissions are in, {self.to_come:,} to come"
        return text if self.remaining is None else f"{text}, about {_duration(self.remaining)} to go"


def watch(
    settings: Settings,
    environment: Environment | None = None,
    *,
    every_s: float = EVERY_S,
    tell: Callable[[str], None] = lambda line: None,
    pause: Callable[[float], None] = time.sleep,
) -> StageResult:
    """Harvest until no HIT is out on which anybody may still work; approves on the way.

    A look that brings nothing doubles the time to the next one, up to 16 times ``every_s``; new answers bring it
    back. A server or a database that does not answer for a while is waited for in the same way.

    Args:
        every_s: seconds, above 0.
        tell: is given a line after each look.
        pause: waits so many seconds.

    Raises:
        CrowdError, OutageError: the first look fails, money is lacking, or 20 looks in a row failed; what was done is
            kept.
    """
    fetched = approved = ended = looks = failures = 0
    warnings: dict[str, None] = {}
    wait_s = every_s
    while True:
        try:
            seen = harvest_once(settings, environment)
            environment = seen.environment  # the same throughout, whatever is posted meanwhile
            new = seen.counts["fetched"]
            fetched, approved = fetched + new, approved + seen.counts["approved"]
            ended += seen.counts.get("ended", 0)
            keep_standings(settings)  # for whoever looks at `mitl status` meanwhile
            forecast_now = _forecast(settings, seen.environment).text
        except FundsError:
            raise
        except (CrowdError, OutageError) as error:
            failures += 1
            if not looks or failures >= MAX_FAILURES:
                raise
            wait_s = min(2 * wait_s, SLOWEST * every_s)
            tell(f"{_clock()}  {error}; looking again in {_duration(dt.timedelta(seconds=wait_s))}")
            pause(wait_s)
            continue
        failures, looks = 0, looks + 1
        if not seen.awaited:
            final = _final(seen, fetched, approved, ended, looks)
            return replace(final, warnings=tuple(warnings | dict.fromkeys(final.warnings)))
        for warning in seen.result.warnings:
            if warning not in warnings:
                tell(f"{_clock()}  warning: {warning}")
            warnings[warning] = None
        wait_s = every_s if new or looks == 1 else min(2 * wait_s, SLOWEST * every_s)
        queued = seen.counts["queued"]
        tell(
            f"{_clock()}  {forecast_now}; {queued:,} waiting for a person; looking again in "
            f"{_duration(dt.timedelta(seconds=wait_s))}"
        )
        pause(wait_s)


def forecast(newest: Sequence[dt.datetime], submissions: int, to_come: int, now: dt.datetime) -> Forecast:
    """How long the rest takes at the rate of the newest submissions.

    Args:
        newest: when the newest submissions came in, newest first.
    """
    if not newest or not to_come:
        return Forecast(submissions, to_come, None)
    per_submission = max(now - newest[-1], dt.timedelta(0)) / len(newest)
    return Forecast(submissions, to_come, per_submission * to_come)


def _forecast(settings: Settings, environment: Environment) -> Forecast:
    with open_database(settings.db_url, read_only=True) as session:
        newest = answer_store.latest_submissions(session, environment, _RECENT)
        submissions = sum(answer_store.decision_counts(session, environment).values())
        to_come = open_work.open_work(session, environment).assignments
    return forecast(newest, submissions, to_come, dt.datetime.now(dt.UTC))


def _final(seen: Harvested, fetched: int, approved: int, ended: int, looks: int) -> StageResult:
    """The last look's result with the sums of all looks."""
    result = seen.result
    counts: HarvestCounts = {**seen.counts, "fetched": fetched, "approved": approved, "looks": looks}
    if ended:
        counts["ended"] = ended
    if looks == 1 or not (fetched or approved):
        return replace(result, counts=counts)
    line = (
        f"{several(fetched, 'submission')} fetched and {approved:,} approved in {looks:,} looks; "
        f"{counts['queued']:,} waiting for a person, and nobody works any more"
    )
    return replace(result, status="done", counts=counts, lines=(line,))


def _clock() -> str:
    return f"{dt.datetime.now(dt.UTC):%H:%M:%S} UTC"


def _duration(span: dt.timedelta) -> str:
    seconds = span.total_seconds()
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
