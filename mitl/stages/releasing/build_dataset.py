"""Building a release: aggregate, merge, exclude, write."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from mitl.crowd.environment import choose_environment
from mitl.db.session import open_database, reading
from mitl.db.store import releases
from mitl.positives.privacy import MIN_ID, short_ids
from mitl.positives.release import WrittenRelease, write_release
from mitl.positives.rules import MergeRules
from mitl.records import Direction, Environment, StageResult, Table, several
from mitl.settings import Settings
from mitl.stages.proposing.query_lists import QueryLists, query_ids
from mitl.stages.releasing.facts import ReleaseFacts, release_facts, release_input


def build_dataset(
    settings: Settings,
    out: Path,
    environment: Environment | None = None,
    *,
    rules: MergeRules | None = None,
    name: str | None = None,
    queries: QueryLists | None = None,
    check_privacy: bool = False,
    replace_earlier: bool = False,
    with_texts: bool = False,
) -> StageResult:
    """Write a release of one environment's judgements merged with the other sources.

    Args:
        queries: whose positives are listed by query; the queries that were proposed for where it says nothing.
        check_privacy: prove before writing that no file holds the raw id of a worker, an assignment or a HIT, or a
            plain hash of one.
        replace_earlier: write over another release that the folder holds.
        with_texts: release what workers wrote in their own words too, without addresses, long numbers and ids.

    Raises:
        ReleaseError: there is nothing to release, the folder holds something else, or a file would give an id away.
        DatasetError: a list of queries cannot be read, or names what the data set lacks.
    """
    rules = rules or MergeRules()
    release_name = name or out.absolute().name
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment, unposted=Environment.LIVE)
        with reading(session):
            known = _with_queries(release_facts(session, settings, chosen), queries or QueryLists())
            data = release_input(session, settings, known, rules, release_name, with_texts=with_texts)
        stated = {"query_lists": _names(queries)} if queries and queries.given else {}
        data = replace(
            data,
            salt=releases.salt(session, release_name),
            configuration={**data.configuration, **stated},
        )
        session.commit()
        ids = known.private_ids if check_privacy else {}
        written = write_release(out, data, private_ids=ids, replace=replace_earlier)
        rules_json = json.dumps(asdict(rules), sort_keys=True)
        releases.set_built(session, release_name, written.manifest_sha256, rules_json)
        session.commit()
    return _result(known, written, rules, release_name, out, ids, data.warnings)


def _with_queries(known: ReleaseFacts, lists: QueryLists) -> ReleaseFacts:
    """The facts with the queries that are named, in place of those that were proposed for."""
    chosen = dict(known.queries)
    for direction, file in lists.given.items():
        items = known.image_ids if direction is Direction.I2T else known.caption_ids
        surrogates = {external: surrogate for surrogate, external in items.items()}
        chosen[direction] = tuple(query_ids(file, direction, surrogates))
    return replace(known, queries=chosen)


def _names(lists: QueryLists) -> dict[str, str]:
    """What the lists are called; their folders are nobody's business."""
    return {direction.value: file.name for direction, file in lists.given.items()}


def _result(
    known: ReleaseFacts,
    written: WrittenRelease,
    rules: MergeRules,
    release_name: str,
    out: Path,
    ids: Mapping[str, Collection[str]],
    fit_warnings: Sequence[str],
) -> StageResult:
    summary = written.summary
    checked = sum(map(len, ids.values()))
    undecided = known.undecided
    warnings = list(fit_warnings)
    if undecided:
        warnings.append(
            f"{several(undecided, 'submission')} still waiting for a person; the answers are not in this release"
        )
    if summary.unanswered:
        warnings.append(
            f"{summary.unanswered:,} of {several(summary.proposed, 'candidate pair')} have no usable answer yet; "
            "matches among them are missing in this release (`mitl status` says where they are)"
        )
    if not any(known.queries.values()):
        warnings.append(
            "which images and captions searched is not known here, so the two JSONs list nothing; name them with "
            "--image-query-ids and --caption-query-ids if lists by query are wanted"
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
            "recipe": rules.recipe.value,
            "with_originals": rules.with_originals,
            "aggregator": rules.aggregator.value,
            **summary.as_json(),
            "ids_checked": checked,
        },
        paths={"release": str(out)},
        warnings=tuple(warnings),
        tables=(Table("", ("direction", "queries", "with positives", "positives"), rows),),
        lines=(
            f"release {release_name}: {several(summary.positives, 'positive')} from "
            f"{several(summary.usable, 'usable judgement')}"
            if written.changed
            else f"nothing to do: {out} holds exactly this release already",
            *([] if summary.texts is None else [summary.texts.line]),
            *([_proof(ids, checked)] if ids else []),
        ),
        next=f"mitl evaluate --release {out}; mitl report" if any(known.queries.values()) else "mitl report",
    )


def _proof(ids: Mapping[str, Collection[str]], checked: int) -> str:
    short = sum(map(short_ids, ids.values()))
    found = f"privacy: none of {checked:,} ids of workers, assignments and HITs is in it, as it is or hashed"
    return found + (
        f"; {short:,} of them, under {MIN_ID} characters, were looked for as hashes alone" if short else ""
    )
