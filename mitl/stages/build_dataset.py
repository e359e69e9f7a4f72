"""Building a release: aggregate, merge, exclude, write."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path

from mitl.db.session import open_database, reading
from mitl.db.store import releases
from mitl.errors import ReleaseError
from mitl.hits.pricing import format_dollars
from mitl.hits.templates import load_template
from mitl.positives.merging import MergeInput, MergeRules, merge
from mitl.positives.release import WrittenRelease, write_release
from mitl.positives.release_input import ReleaseCard, ReleaseInput
from mitl.records import Decision, Direction, Environment, StageResult, Table
from mitl.settings import Settings
from mitl.stages.environment import choose_environment
from mitl.stages.golds import gold_state
from mitl.stages.snapshot import Snapshot, snapshot

RECIPE = "paper"
"""Verified positives and CxC's; the rules of merging vary it."""


def build_dataset(
    settings: Settings,
    out: Path,
    environment: Environment | None = None,
    *,
    rules: MergeRules | None = None,
    name: str | None = None,
    recipe: str = RECIPE,
) -> StageResult:
    """Write a release of one environment's judgements merged with the other sources.

    Args:
        recipe: named in the manifest; how the sources are merged is in ``rules``.

    Raises:
        ReleaseError: there is nothing to release, or the folder holds something else.
    """
    rules = rules or MergeRules()
    release_name = name or out.absolute().name
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        with reading(session):
            known = snapshot(session, settings, chosen)
        if not known.judgements and not known.ratings:
            raise ReleaseError(
                "there are no judgements and no CxC ratings, so there is nothing to release; "
                "run `mitl harvest` first"
            )
        salt = releases.salt(session, release_name)
        session.commit()
        data = release_input(settings, known, rules, release_name, salt, recipe)
        written = write_release(out, data)
        rules_json = json.dumps(asdict(rules), sort_keys=True)
        releases.set_built(session, release_name, written.manifest_sha256, rules_json)
        session.commit()
    return _result(known, written, rules, release_name, out)


def _result(
    known: Snapshot, written: WrittenRelease, rules: MergeRules, release_name: str, out: Path
) -> StageResult:
    summary = written.summary
    undecided = sum(row.decision in (Decision.NONE, Decision.QUEUED) for row in known.submissions)
    warnings = []
    if undecided:
        warnings.append(
            f"{undecided} submissions still wait for a person; their answers are not in this release"
        )
    rows = tuple(
        (
            direction.value,
            len(known.queries[direction]),
            summary.queries_listed[direction],
            summary.query_positives[direction],
        )
        for direction in Direction
    )
    return StageResult(
        status="done" if written.changed else "nothing_to_do",
        counts={
            "environment": known.environment.value,
            "manifest_sha256": written.manifest_sha256,
            "with_originals": rules.with_originals,
            **summary.as_json(),
        },
        paths={"release": str(out)},
        warnings=tuple(warnings),
        tables=(Table("", ("direction", "queries", "with positives", "positives"), rows),),
        lines=(
            f"release {release_name}: {summary.positives:,} positives from {summary.usable:,} usable judgements"
            if written.changed
            else f"nothing to do: {out} holds exactly this release already",
        ),
        next=f"mitl evaluate --release {out}; mitl report",
    )


def release_input(
    settings: Settings, known: Snapshot, rules: MergeRules, name: str, salt: bytes, recipe: str = RECIPE
) -> ReleaseInput:
    """What a release is made of; also used to see what a release would hold."""
    judgements = tuple(row.record for row in known.judgements)
    merged = merge(
        MergeInput(
            judgements=judgements,
            ratings=tuple(known.ratings.items()),
            originals=tuple(known.originals),
            found_by=known.found_by,
            exclusions=known.exclusions,
        ),
        rules,
    )
    return ReleaseInput(
        name=name,
        dataset=known.dataset.name,
        environment=known.environment,
        id_kind=known.dataset.id_kind,
        image_ids=known.image_ids,
        caption_ids=known.caption_ids,
        queries=known.queries,
        merged=merged,
        rules=rules,
        judgements=judgements,
        proposals=known.proposals,
        salt=salt,
        seeds={"project": settings.seed},
        configuration=_configuration(settings, known, recipe),
        crowd_facts=_crowd_facts(known),
        card=ReleaseCard(contact=settings.contact or "", pay=_pay(known)),
    )


def _configuration(settings: Settings, known: Snapshot, recipe: str) -> dict[str, object]:
    return {
        "recipe": recipe,
        "runs": [json.loads(run.config) for run in known.runs],
        "batches": [
            {
                "name": batch.name,
                "template": batch.template,
                "template_sha256": load_template(batch.template, settings.wordings).content_hash,
                "direction": batch.direction,
                "assignments": batch.assignments,
                "reward_cents": batch.reward_cents,
                "seed": batch.seed,
            }
            for batch in known.batches
        ],
        "exclusions": len(known.exclusion_rows),
    }


def _crowd_facts(known: Snapshot) -> dict[str, str]:
    golds = [row.record for row in known.judgements if row.record.role.is_gold]
    if not golds:
        return {}
    state = gold_state(known.judgements)
    passes = sum(record.passes for record in state.records.values())
    total = sum(record.golds for record in state.records.values())
    decided = {decision: sum(row.decision is decision for row in known.submissions) for decision in Decision}
    facts = {
        "Gold controls": f"{passes:,} of {total:,} answered as expected; {len(state.withdrawn)} controls withdrawn",
        "Submissions": (
            f"{len(known.submissions):,}; {decided[Decision.PASS] + decided[Decision.APPROVE]:,} used, "
            f"{decided[Decision.DROP] + decided[Decision.APPROVE_EXCLUDE]:,} paid without use, "
            f"{decided[Decision.REJECT]:,} rejected"
        ),
    }
    seconds = active_seconds(known)
    if seconds:
        facts["Median active time"] = f"{statistics.median(seconds.values()):.0f} s a HIT"
    return facts


def _pay(known: Snapshot) -> str:
    if not known.batches:
        return ""
    rewards = sorted({format_dollars(batch.reward_cents) for batch in known.batches})
    money = "practice money" if known.environment is Environment.SANDBOX else "paid"
    return f"{' and '.join(rewards)} a HIT of 20 pairs ({money})"


def active_seconds(known: Snapshot) -> dict[int, float]:
    """Submission → active seconds on its page, as the page measured them; without those that measured nothing."""
    totals: dict[int, float] = {}
    for row in known.judgements:
        if row.record.active_ms:
            totals[row.assignment_id] = totals.get(row.assignment_id, 0.0) + row.record.active_ms / 1000
    return totals
