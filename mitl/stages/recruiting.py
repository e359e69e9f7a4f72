"""Panels and the study's text, for the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypedDict

from sqlalchemy import Engine

from mitl.core.formats import csv_text
from mitl.core.pricing import format_dollars
from mitl.core.whole_files import write_kept
from mitl.crowd_server import admin
from mitl.crowd_server.pages.panels import PROFILES, End, link_of, read_ends
from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.panels import FORGOTTEN, PanelRow
from mitl.crowd_server.store.workers import StudyRow
from mitl.errors import UsageError
from mitl.records import Environment, StageResult, Table, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.serve import base_of, crowd_database, reached

_MAX_FILE = 200_000


@printed_by("crowd panel add")
class PanelAddCounts(EnvironmentCounts):
    """A panel's study link."""

    slug: Annotated[str, "the panel's name, the last part of its link"]
    link: Annotated[str, "the study link, with the panel's placeholders"]


@printed_by("crowd panel change")
class PanelChangeCounts(TypedDict):
    """A panel whose codes or ways back were corrected."""

    changed: Annotated[str, "the panel"]


@printed_by("crowd panel list")
class PanelListCounts(TypedDict):
    """All panels by name."""

    panels: Annotated[int, "all panels"]
    links: Annotated[dict[str, str], "by panel: the study link"]
    visits: Annotated[dict[str, dict[str, int]], "by panel: visits by state"]


@printed_by("crowd panel visits")
class PanelVisitsCounts(TypedDict):
    """Who came to a panel."""

    panel: Annotated[str, "the panel"]
    visits: Annotated[int, "its visits"]


@printed_by("crowd panel visits", key="paths")
class PanelVisitsPaths(TypedDict):
    """Where the list of visits is."""

    visits: Annotated[str, "the CSV file, with `--out`"]


@printed_by("crowd panel close")
class PanelCloseCounts(TypedDict):
    """A panel that lets nobody new in."""

    closed: Annotated[str, "the panel"]


@printed_by("crowd panel forget")
class PanelForgetCounts(TypedDict):
    """Whose panel ids were deleted."""

    forgotten: Annotated[int, "workers whose panel ids were deleted"]


@printed_by("crowd study")
class StudyCounts(EnvironmentCounts):
    """The study's text."""

    version: Annotated[int, "version of the text; 0 where there is none"]


def add_panel(
    settings: Settings, environment: Environment, plan: admin.PanelPlan, *, base_url: str | None
) -> StageResult:
    """Make a panel and say which study link to paste there."""
    base = base_of(base_url)
    with crowd_database(settings) as engine:
        panel, is_new = admin.add_panel(engine, environment, plan)
        study = admin.study(engine, environment)
        _, following = reached(base, engine)
    link = link_of(panel, base)
    lines = () if is_new else (f"nothing to do: the panel {panel.slug} is there already",)
    return StageResult(
        status="done" if is_new else "nothing_to_do",
        counts=PanelAddCounts(environment=environment.value, slug=panel.slug, link=link),
        lines=(*lines, *_explained(panel, link)),
        warnings=_warnings(panel, study, base_url),
        next=following,
    )


def _explained(panel: PanelRow, link: str) -> tuple[str, ...]:
    profile = PROFILES[panel.profile]
    lines = [f"study link to paste into {profile.title}:", f"  {link}"]
    if profile.name == "generic":
        lines.append("  (put each person's own id in place of ID)")
    if not profile.placeholders.worker:
        names = (panel.worker_parameter, panel.session_parameter, panel.study_parameter)
        lines.append(f"  ({profile.title} adds {', '.join(filter(None, names))} by itself)")
    return (*lines, *_ways_back(panel))


def _ways_back(panel: PanelRow) -> list[str]:
    lines = []
    for state, end in read_ends(panel.ends).items():
        option = admin.OPTIONS[state]
        way = " and code ".join(filter(None, (end.url, end.code))) if end.url else f"code {end.code}"
        lines.append(f"  {option}: {way if end.url or end.code else 'a page without link or code'}")
    return lines


def _warnings(panel: PanelRow, study: StudyRow | None, base_url: str | None) -> tuple[str, ...]:
    warnings = []
    if base_url is None:
        warnings.append(
            "people reach this link on this machine only; name the public address with --base-url"
        )
    elif not base_url.startswith("https://"):
        warnings.append(f"{base_url} is not https; panels send people to https addresses only")
    warnings += _same_codes(panel)
    if study is None or not study.consent:
        warnings.append(
            f"nobody is asked to consent on {panel.environment}; set the study's text with `mitl crowd study "
            f"--{panel.environment}`"
        )
    return tuple(warnings)


def _same_codes(panel: PanelRow) -> list[str]:
    warnings = []
    completed, *others = read_ends(panel.ends).items()
    for state, end in others:
        if end.code and end.code == completed[1].code:
            warnings.append(
                f"--{admin.OPTIONS[state]}-code is that of --complete-code, {end.code}, so "
                f"{PROFILES[panel.profile].title} cannot tell them apart and may pay both; if that is not meant, give "
                f"another with `mitl crowd panel change {panel.slug} --{admin.OPTIONS[state]}-code CODE`"
            )
    return warnings


def change_panel(settings: Settings, slug: str, ends: Mapping[VisitState, End]) -> StageResult:
    """Correct the given codes and ways back of a panel, also for who has come to an end already."""
    with crowd_database(settings) as engine:
        panel, changed = admin.change_panel(engine, slug, ends)
    told = (
        f"the panel {slug} is corrected; who has seen the end already sees this by their study link again:"
        if changed
        else f"nothing to do: the panel {slug} has these codes and links already"
    )
    return StageResult(
        status="done" if changed else "nothing_to_do",
        counts=PanelChangeCounts(changed=slug),
        lines=(told, *_ways_back(panel)),
        warnings=tuple(_same_codes(panel)),
    )


def list_panels(settings: Settings, base_url: str | None) -> StageResult:
    """All panels with their study links and what became of the visits."""
    base = base_of(base_url)
    with crowd_database(settings) as engine:
        panels = admin.list_panels(engine)
    rows = tuple(
        (
            panel.slug,
            panel.environment.value,
            panel.profile,
            "closed" if panel.closed_at else "open",
            *(visits.get(state, 0) for state in VisitState),
        )
        for panel, visits in panels
    )
    columns = (
        "panel",
        "environment",
        "profile",
        "state",
        "at work",
        "completed",
        "no consent",
        "nothing left",
    )
    links = {panel.slug: link_of(panel, base) for panel, _ in panels}
    return StageResult(
        counts=PanelListCounts(
            panels=len(rows),
            links=links,
            visits={panel.slug: {s.value: visits.get(s, 0) for s in VisitState} for panel, visits in panels},
        ),
        tables=(Table(several(len(rows), "panel"), columns, rows),),
        lines=tuple(f"  {slug}: {link}" for slug, link in links.items()),
    )


def list_visits(settings: Settings, slug: str, out: Path | None, *, replace: bool = False) -> StageResult:
    """The visits of one panel, to compare with the panel's own list; as a table, or as CSV in a file.

    Raises:
        UsageError: another file is there, or the place cannot be written.
    """
    with crowd_database(settings) as engine:
        visits = admin.list_visits(engine, slug)
    columns = ("worker", "panel_id", "session", "study", "state", "hits", "started", "ended")
    rows = tuple(
        (
            row.worker,
            row.external_id,
            "" if row.session.startswith(FORGOTTEN) else row.session,
            row.study,
            row.state.value,
            row.hits_done,
            f"{row.started_at:%Y-%m-%dT%H:%M:%SZ}",
            f"{row.ended_at:%Y-%m-%dT%H:%M:%SZ}" if row.ended_at else None,
        )
        for row in visits
    )
    counts = PanelVisitsCounts(panel=slug, visits=len(rows))
    if out is None:
        return StageResult(
            counts=counts, tables=(Table(f"{several(len(rows), 'visit')} to {slug}", columns, rows),)
        )
    write_kept(out, csv_text([columns, *rows]).encode(), replace=replace, mode=0o600)
    ids = "; the file holds the panel's ids of people" if any(row.external_id for row in visits) else ""
    lines = (f"{several(len(rows), 'visit')} to {slug} {'is' if len(rows) == 1 else 'are'} in {out}{ids}",)
    return StageResult(counts=counts, paths=PanelVisitsPaths(visits=str(out)), lines=lines)


def close_panel(settings: Settings, slug: str) -> StageResult:
    """Let nobody new in by a panel's link."""
    with crowd_database(settings) as engine:
        changed = admin.close_panel(engine, slug)
    if not changed:
        return StageResult.nothing(f"the panel {slug} was closed before", PanelCloseCounts(closed=slug))
    line = (
        f"the panel {slug} is closed: who comes now is told that nothing is left; who is at work may finish"
    )
    return StageResult(counts=PanelCloseCounts(closed=slug), lines=(line,))


def forget(
    settings: Settings, environment: Environment | None, worker: str | None, *, paid: bool = False
) -> StageResult:
    """Delete the panels' ids of one person, in one environment or in both, or of all of an environment.

    Raises:
        StoreError: panels call more than one person so.
        UsageError: somebody is owed something, and nobody says that it is paid.
    """
    assert worker is not None or environment is not None, "nobody forgets everybody of both environments"
    environments = tuple(Environment) if environment is None else (environment,)
    with crowd_database(settings) as engine:
        if not paid:
            _require_paid(engine, environments, worker)
        count = admin.forget(engine, environments, worker)
    if count == 0:
        return StageResult.nothing("no such id is kept", PanelForgetCounts(forgotten=0))
    return StageResult(
        counts=PanelForgetCounts(forgotten=count),
        lines=(
            f"the panel's ids of {several(count, 'person', 'people')} are deleted",
            "their answers and what they are owed stay under their worker ids, which cannot be led back to them",
            "earlier backups still hold them: delete these, and after a restore run this command again",
        ),
    )


def _require_paid(engine: Engine, environments: Sequence[Environment], worker: str | None) -> None:
    for environment in environments:
        people, cents, waiting = admin.owed_before_forgetting(engine, environment, environments, worker)
        if people:
            work = f", and {several(waiting, 'submission')} of theirs not decided yet" if waiting else ""
            raise UsageError(
                f"{several(people, 'person', 'people')} to be forgotten on {environment}: {format_dollars(cents)} owed "
                f"since the beginning{work}, "
                "which nobody could pay by a panel's id any more; nothing was deleted: pay first (`mitl crowd payments "
                f"--{environment}`, or the operator page's files), then add --paid"
            )


def study(settings: Settings, environment: Environment, changes: Mapping[str, str]) -> StageResult:
    """Set the given texts of the study, or show it where none is given."""
    with crowd_database(settings) as engine:
        changed = False
        if changes:
            _, changed = admin.change_study(engine, environment, changes)
        text = admin.study(engine, environment)
        # A running server shows it at once.
        following = reached(base_of(None), engine)[1] if changed else ""
    counts = StudyCounts(environment=environment.value, version=text.version if text else 0)
    if text is None:
        line = f"no study is described on {environment}; people are asked nothing before their first HIT"
        return StageResult(counts=counts, lines=(line,))
    if changes and not changed:
        return StageResult.nothing(f"that is the study's text already (version {text.version})", counts)
    return StageResult(counts=counts, lines=_study_lines(text), next=following)


def _study_lines(text: StudyRow) -> tuple[str, ...]:
    asked = "people are asked to agree" if text.consent else "people are not asked to agree"
    shown = asked if text.is_shown_first else "nothing is shown before the first HIT"
    return (
        f"study on {text.environment}, version {text.version} of {text.changed_at:%Y-%m-%d %H:%M} UTC; {shown}",
        f"  title: {text.title or '–'}",
        f"  contact: {text.contact or '–'}",
        f"  warning: {text.warning or '–'}",
        f"  consent: {text.consent or '–'}",
        f"  information: {len(text.paragraphs)} paragraphs, {len(text.information):,} characters",
        *(f"    {line}" for part in text.paragraphs for line in part.splitlines()),
    )


def read_information(path: Path) -> str:
    """The text of the information's file.

    Raises:
        UsageError: it is not UTF-8 text, holds a zero character, which PostgreSQL keeps in no text, or is far too long.
    """
    if path.stat().st_size > _MAX_FILE:
        raise UsageError(f"{str(path)!r} is {path.stat().st_size:,} bytes long; give a text people can read")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not UTF-8 text; save it as UTF-8") from error
    if "\0" in text:
        raise UsageError(f"{str(path)!r} holds a zero character, so it is not text; save it as UTF-8")
    return text
