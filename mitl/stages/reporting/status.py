"""One screen on where a project stands, once or at each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict, cast

from mitl.core.formats import percent
from mitl.core.pricing import format_dollars
from mitl.db.session import connectable
from mitl.db.store import standings
from mitl.db.store.standings import Standing
from mitl.errors import OutageError
from mitl.interrupts import interrupts_held
from mitl.records import PAIRS_COMMAND, ROUND_COMMAND, Environment, StageResult, Table, several
from mitl.records.collection import COLLECT_COMMAND, TEXTS
from mitl.records.items import counted
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from mitl.stages.auditing.showing import AuditState


class AuditCounts(TypedDict):
    """How far the valid audit of recall is."""

    number: int
    pairs: int
    complete: int
    wanted: int
    out: int
    recall: float | None
    precision: float | None


@printed_by("status")
class StatusCounts(EnvironmentCounts):
    """What `mitl status` counts."""

    images: Annotated[int, "images of the data set"]
    captions: Annotated[int, "captions of the data set"]
    pairs: Annotated[int, "candidate pairs"]
    pairs_open: Annotated[int, "pairs on no live HIT, without a usable judgement and on no exclusion list"]
    pairs_judged: Annotated[int, "pairs with a usable judgement"]
    hits: Annotated[dict[str, int], "HITs by state: planned, sending, posted, closed"]
    submissions: Annotated[int, "assignments submitted"]
    queued: Annotated[int, "submissions that wait for a person"]
    calls_open: Annotated[
        int, "decided submissions that the server has not heard of; `mitl harvest` carries that out"
    ]
    hits_to_ask_again: Annotated[int, "closed HITs whose answers could not be used"]
    golds_answered: Annotated[int, "answers on gold controls"]
    golds_passed: Annotated[int, "those as expected"]
    golds_withdrawn: Annotated[
        int, "controls that workers of good record fail; what was answered there is forgiven"
    ]
    audit: Annotated[
        AuditCounts | None, "the valid audit of recall: see `mitl audit show`; null where there is none"
    ]
    other_kinds: Annotated[
        dict[str, dict[str, int]],
        "campaigns that do not ask whether pairs match, by kind: HITs, submissions, and submissions that are kept",
    ]
    texts: Annotated[
        dict[str, int] | None,
        "items chosen to get a partner, texts written and images picked for them, and those of both that are faulty, "
        "refused, accepted or waiting for a review: see `mitl collect show`; null where no item was chosen",
    ]
    paid_cents: Annotated[int, "rewards and fees paid"]
    hits_out: Annotated[int, "posted HITs that still wait for a worker"]
    held_cents: Annotated[int, "rewards promised for work that is not decided"]


def status(settings: Settings, environment: Environment | None = None) -> StageResult:
    """Pairs, HITs, answers, gold pass rate, money, and the next step.

    What is known since the last command that wrote is shown as it is; the models, numpy and every row are loaded only
    where something was written since.
    """
    seen = _kept(settings, environment) or _counted(settings, environment)
    chosen, standing, others, state = seen.environment, seen.standing, seen.other_kinds, seen.audit
    audit = None if state is None else _audit_counts(state)
    counts = {"environment": chosen.value, **standing["counts"], "other_kinds": others, "audit": audit}
    now = cast(StatusCounts, {name: counts[name] for name in StatusCounts.__annotations__})
    rows = _rows(now, standing, state)
    following = _next(now, settings.annotators, seen)
    if standing["round"] is not None:
        rows = (*rows, ("round", f"{standing['round']} is under way; see `mitl round show`"))
        if following.startswith(PAIRS_COMMAND):  # which a round has for itself while it is open
            following = f"{ROUND_COMMAND} --{now['environment']}"
    title = f"{settings.project.name} · {chosen}"
    return StageResult(
        counts=now,
        tables=(Table(title, ("what", "now"), rows),),
        next=following,
    )


class _Seen(NamedTuple):
    environment: Environment
    standing: Standing
    other_kinds: dict[str, dict[str, int]]
    asked_by: str | None
    """The command that asks what is chosen without a proposal."""
    released: bool
    """Whether a release was built."""
    at_hand: bool
    """Whether every image has a file, or nobody needs to know."""
    audit: AuditState | None = None
    """The valid audit of recall."""


def _kept(settings: Settings, environment: Environment | None) -> _Seen | None:
    """What is kept of an environment; None where it has to be counted."""
    with connectable(settings.db_url, read_only=True) as engine, engine.connect() as connection:
        kept = standings.kept(connection)
        any_of_them = next(iter(kept.values()), None)
        if any_of_them is None:
            return None
        chosen = environment or Environment(any_of_them["default"])
        found = kept.get(chosen)
        if found is None or found["audited"] or found["rule"] != standings.rule_of(settings.gold_rule):
            return None
        return _seen(connection, chosen, found)


def _seen(connection: Connection, chosen: Environment, found: Standing) -> _Seen:
    return _Seen(
        chosen,
        found,
        standings.other_work(connection, chosen),
        standings.unproposed_command(connection),
        standings.is_released(connection, chosen),
        bool(found["counts"]["pairs"]) or standings.all_at_hand(connection, found["sides"][0]),
    )


def _counted(settings: Settings, environment: Environment | None) -> _Seen:
    """Where the environment stands by the rows."""
    from mitl.campaign.standing import standing
    from mitl.crowd.context import open_context

    with open_context(settings, environment, read_only=True) as context:
        found = standing(context.session, context.environment, settings.gold_rule)
        seen = _seen(context.session.connection(), context.environment, found)
        if not found["audited"]:
            return seen
        from mitl.stages.auditing.showing import audit_state

        return seen._replace(audit=audit_state(context))


def _audit_counts(state: AuditState) -> AuditCounts:
    return {
        "number": state.audit.number,
        "pairs": state.audit.design.sample,
        "complete": state.complete,
        "wanted": state.wanted,
        "out": state.out,
        "recall": None if state.bound is None else state.bound.recall,
        "precision": None if state.bound is None else state.bound.precision,
    }


def _rows(now: StatusCounts, standing: Standing, audit: AuditState | None) -> tuple[tuple[object, ...], ...]:
    golds, passes, withdrawn = now["golds_answered"], now["golds_passed"], now["golds_withdrawn"]
    rate = (
        f"{passes:,} of {golds:,} passed ({percent(passes / golds)})"
        if golds
        else "none of pairs answered yet"
    )
    if withdrawn:
        rate += f"; {withdrawn:,} withdrawn, because workers of good record fail them"
    batches = several(standing["batches"], "batch", "batches")
    hits, out, again = sum(now["hits"].values()), now["hits_out"], now["hits_to_ask_again"]
    paid, held = format_dollars(now["paid_cents"]), format_dollars(now["held_cents"])
    # A round chose the others, or past work brought them.
    beyond = now["pairs_judged"] + now["pairs_open"] > now["pairs"]
    judged = f"{now['pairs_judged']:,} judged{' (some never proposed)' if beyond else ''}"
    pairs = f"{now['pairs']:,} proposed, {judged}, {now['pairs_open']:,} open"
    pairs += f", {standing['excluded']:,} left out by exclusion lists" * bool(standing["excluded"])
    unsent, texts = now["calls_open"], now["texts"]
    rows = (
        (
            "data set",
            f"{standing['dataset']}: {counted(standing['sides'], now['images'], now['captions'])}",
        ),
        ("pairs", pairs),
        ("HITs", f"{hits:,} in {batches}, {out:,} out, {again:,} to ask again"),
        ("answers", f"{several(now['submissions'], 'submission')}, {now['queued']:,} waiting for a person"),
        ("calls", _calls_line(unsent)) if unsent else None,
        ("controls", rate),
        None if audit is None else ("audit", audit.line),
        *((kind, _work_line(work)) for kind, work in now["other_kinds"].items() if kind != TEXTS),
        None if texts is None else ("texts", _texts_line(texts)),
        ("money", f"{paid} paid, {held} held for work that is not decided"),
    )
    return tuple(row for row in rows if row is not None)


def _calls_line(unsent: int) -> str:
    from mitl.stages.reviewing.review import in_words

    return f"{in_words(unsent)}; `mitl harvest` carries that out"


def _work_line(work: Mapping[str, int]) -> str:
    return (
        f"{several(work['hits'], 'HIT')}, {several(work['submissions'], 'submission')}, {work['kept']:,} kept"
    )


def _texts_line(texts: Mapping[str, int]) -> str:
    given = texts["written"] + texts["picked"]
    return (
        f"{several(texts['chosen'], 'item')} chosen, {given:,} written or picked, {texts['accepted']:,} accepted, "
        f"{texts['refused'] + texts['faulty']:,} refused or against a rule, {texts['waiting']:,} without a review"
    )


def _next(now: StatusCounts, annotators: Sequence[str], seen: _Seen) -> str:
    """The next step."""
    standing = seen.standing
    here = "" if standing["default"] == now["environment"] else f" --{now['environment']}"
    if not now["pairs"] and not sum(now["hits"].values()):
        if seen.asked_by is not None:
            return f"{seen.asked_by} --{now['environment']}"
        from mitl.stages.setup.init import first_step

        smaller_side = min(now["images"], now["captions"]) if seen.at_hand else None
        return first_step(annotators, smaller_side, standing["sides"])
    if now["calls_open"]:
        return f"mitl harvest{here}"
    if now["queued"]:
        return f"mitl review{here}"
    if now["hits_out"] and now["hits_out"] == standing["ended"]:
        return f"mitl harvest{here}"
    if now["hits_out"]:
        helpers = "" if now["environment"] == Environment.LIVE else f" (or mitl simulate{here})"
        return f"mitl serve for people{helpers}, then mitl harvest{here}"
    texts, audit = now["texts"], now["audit"]
    if texts is not None and texts["waiting"]:
        return f"{COLLECT_COMMAND} --{now['environment']}, which asks others to review the texts"
    if (
        now["hits_to_ask_again"]
        or now["pairs_open"]
        or standing["disputed"]
        or (audit is not None and audit["wanted"] > audit["out"])
    ):
        return f"{next(iter(standing['again']), PAIRS_COMMAND)} --{now['environment']}"
    if now["pairs_judged"]:
        build = f"mitl build-dataset{here} --out DIR"
        return f"mitl report, or {build} again where more was judged since" if seen.released else build
    return (
        "; ".join(f"{scores}{here}" for scores in standing["scores"])
        if standing["scores"] and now["submissions"]
        else f"mitl harvest{here}"
    )


EVERY_S = 5.0
"""Seconds between two looks."""


def watch(
    settings: Settings,
    environment: Environment | None = None,
    *,
    every_s: float = EVERY_S,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[StageResult]:
    """Where the project stands now, then again at each change, until nobody asks any more.

    While its database cannot be reached, it stands where it stood, with a warning.

    Args:
        every_s: seconds between two looks, above 0.
        pause: waits so many seconds.

    Raises:
        OutageError: at the first look.
    """
    before: StageResult | None = None
    while True:
        try:
            with interrupts_held():  # or a database that is being closed would complain of Ctrl-C at length
                now = status(settings, environment)
        except OutageError as error:
            if before is None:
                raise
            now = replace(before, warnings=(str(error),))
        if now != before:
            yield now
        before = now
        pause(every_s)


def line(result: StageResult) -> str:
    """The look in one line, for a log or a pipe; not every change shows in it."""
    if result.warnings:
        return "; ".join(result.warnings)
    counts = result.counts
    numbers = (
        ("pairs open", "pairs_open"),
        ("judged", "pairs_judged"),
        ("HITs out", "hits_out"),
        ("submissions", "submissions"),
        ("wait for a person", "queued"),
    )
    words = ", ".join(f"{int(str(counts[key])):,} {name}" for name, key in numbers)
    return f"{counts['environment']}: {words}"
