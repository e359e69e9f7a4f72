"""Every request of a study, made by the client's own code and sent nowhere; and the same on disk for a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mitl.errors import TemplateError
from mitl.progress import Progress
from mitl.stages.harvesting.exclusion import exclusion_qualification
from mitl.stages.preferring.job import DueComparisons
from mitl.stages.preferring.pages import RankingPages
from mitl.stages.publishing.dry_run import PAGES, DryRunFolder
from mitl.stages.publishing.hit_calls import create_hit, create_hit_type
from mitl.stages.publishing.rehearsal import Keep, Rehearsal, RehearsalClient


def rehearse(
    due: Sequence[DueComparisons],
    pages: RankingPages,
    project_id: str,
    progress: Progress,
    keep: Keep | None = None,
) -> int:
    """Render and check every HIT and each of its requests; returns the largest question's size in bytes.

    Raises:
        TemplateError: a page is malformed or too large.
        CrowdError: a request is not as the API wants it.
        DatasetError: a page's picture cannot be shown.
    """
    pages.prepare([one.page for one in due])
    largest = 0
    with RehearsalClient(Rehearsal(keep)) as client, progress("check", len(due)) as advance:
        guard = exclusion_qualification(client, project_id)
        types: dict[tuple[str, int], str] = {}
        for one in due:
            try:
                question = pages.question(one.page, one.template)
            except TemplateError as error:
                raise TemplateError(f"HIT {one.hit.key}: {error}") from error
            kind = (one.template.name, one.reward_cents)
            if kind not in types:
                types[kind] = create_hit_type(client, one.template, one.reward_cents, guard)
            create_hit(client, project_id, one.hit, types[kind], question)
            largest = max(largest, len(question.encode()))
            advance(1)
    return largest


def write_pages(folder: DryRunFolder, due: Sequence[DueComparisons], pages: RankingPages) -> None:
    """Write each HIT's page, its pictures taken from where they lie."""
    into: Path = folder.path / PAGES
    for one in due:
        html = pages.local_html(one.page, one.template, into)
        (into / f"{one.hit.key.replace(':', '-')}.html").write_text(html, encoding="utf-8")
