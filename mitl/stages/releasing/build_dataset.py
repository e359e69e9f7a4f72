"""Building a release: aggregate, merge, exclude, write."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from mitl.crowd.context import Context, open_context
from mitl.db.session import reading
from mitl.db.store import audits as audit_store
from mitl.db.store import columns, releases
from mitl.db.store import hits as hit_store
from mitl.db.store.hits import BatchRow
from mitl.errors import ReleaseError, SettingsError
from mitl.hits.templates import declared_questions
from mitl.judgements.gold_records import gold_state
from mitl.positives.folders import WrittenRelease
from mitl.positives.markdown import release_words
from mitl.positives.merging import MergeRules, gather, merge
from mitl.positives.pair_answers import pair_answers
from mitl.positives.privacy import MIN_DIGITS, MIN_ID, short_ids
from mitl.positives.release import write_release
from mitl.positives.release_input import MadeOf, ReleaseCard, ReleaseInput
from mitl.positives.scrubbing import scrubbed_columns
from mitl.positives.sheet_audit import machine_counts
from mitl.positives.summary import Summary, SummaryCounts
from mitl.records import BatchKind, Direction, Environment, JudgementSource, StageResult, Table, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.records.similarity import SIMILARITY
from mitl.settings import Settings
from mitl.stages.collecting.show import accepted_texts, originals_with
from mitl.stages.proposing.query_lists import QueryLists, query_ids
from mitl.stages.releasing.additions import (
    collected,
    collecting,
    learning,
    with_certificate,
    with_machine_bound,
)
from mitl.stages.releasing.origins import ReleaseFacts, origins, release_facts
from mitl.stages.releasing.verify import ReleasePaths

_OF_OTHERS = {
    SIMILARITY: "`mitl rate release` releases the ratings of similarity",
    BatchKind.RANKINGS: "`mitl prefer scores` scores the preferences",
}
"""What becomes of answers that no release holds, by the kind of campaign that asked for them."""

_LISTED_BY = {Direction.I2T: "--image-query-ids", Direction.T2I: "--caption-query-ids"}


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """What a release holds."""

    rules: MergeRules = field(default_factory=MergeRules)
    name: str | None = None
    """That of its folder where it has no other."""
    queries: QueryLists = field(default_factory=QueryLists)
    """Whose positives are listed by query; the queries that were proposed for where it says nothing."""
    with_texts: bool = False
    """Release what workers wrote in their own words too, without addresses, long numbers and ids."""
    humans_only: bool = False
    """Leave out what a machine labelled, as if it had labelled nothing."""


def release_input(context: Context, known: ReleaseFacts, name: str, options: ReleaseOptions) -> ReleaseInput:
    """What a release is made of, but for its salt: judgements, proposals, ratings and originals as frames, merged.

    Raises:
        ReleaseError: nobody judged, rated or wrote anything.
    """
    session, environment = context.session, context.environment
    settings, rules = context.settings, options.rules
    crowd = (batch.template for batch in known.batches if batch.source is JudgementSource.CROWD)
    questions = declared_questions(crowd, settings.wordings)
    judgements = columns.judgement_columns(
        session, environment, questions=questions, with_texts=options.with_texts
    )
    rated, scores = columns.rating_columns(session)
    machine = None if options.humans_only else audit_store.machine_labels(session, environment)
    texts = accepted_texts(context)
    if not len(judgements) and not len(rated) and not texts:
        kinds = {batch.kind for batch in hit_store.batches(session, environment)}
        after = next(
            (_OF_OTHERS[kind] for kind in _OF_OTHERS if kind in kinds), "`mitl status` says what comes first"
        )
        raise ReleaseError(
            "there are no judgements and no earlier ratings, so there is nothing to release, and no methods section "
            f"to write; {after}"
        )
    judgements, scan = scrubbed_columns(judgements, chain.from_iterable(known.private_ids.values()))
    golds = gold_state(judgements, settings.gold_rule)
    answers = pair_answers(judgements, rules, golds.withdrawn)
    learnt = learning(session, environment)
    history = origins(context, known, golds, judgements, learnt)
    evidence = gather(answers.pairs, rated, scores, originals_with(context), machine)
    data = ReleaseInput(
        name=name,
        dataset=known.dataset.name,
        dataset_sha256=known.dataset.content_sha256,
        environment=environment,
        id_kind=known.dataset.id_kind,
        image_ids=known.image_ids,
        caption_ids=known.caption_ids,
        references=known.references,
        queries=known.queries,
        merged=merge(evidence, rules, known.exclusions),
        rules=rules,
        judgements=judgements,
        proposals=columns.proposal_columns(session, withdrawn=True),
        salt=b"",
        questions=questions,
        seeds={"project": settings.seed},
        configuration={
            "recipe": rules.recipe.value,
            "runs": [run.config for run in known.runs],
            "batches": [_batch(known, batch) for batch in known.batches],
            "exclusions": sum(entry.entries for entry in history.exclusions),
            "gold_rule": {
                "positive": [label.value for label in settings.gold_positive_passes],
                "negative": [label.value for label in settings.gold_negative_passes],
            },
            **learnt.configuration,
        },
        origins=history,
        chosen=learnt.chosen,
        texts=scan,
        fit=answers.fit,
        posterior=answers.posterior,
        warnings=answers.warnings,
        card=release_card(settings),
        collected=collected(
            [text for text in texts if not known.exclusions.take_out(text.image, text.caption)],
            chain.from_iterable(known.private_ids.values()),
        ),
        collecting=collecting(context),
        sides=known.dataset.pair_sides,
    )
    if data.has_machine_labels:
        data = with_machine_bound(context, data)
    return data


def release_card(settings: Settings) -> ReleaseCard:
    """What the makers state in [release], and the contact that workers are given where they state none.

    Raises:
        SettingsError: what is stated as a date is none.
    """
    stated: dict[str, Any] = {"contact": settings.contact or "", **settings.release}
    card = ReleaseCard(**stated)
    try:
        if card.date_published:
            dt.date.fromisoformat(card.date_published)
    except ValueError:
        raise SettingsError(
            f'release.date_published is {card.date_published!r}, which is not a date; write it as "2026-11-20"'
        ) from None
    return card


def _batch(known: ReleaseFacts, batch: BatchRow) -> dict[str, object]:
    """What decided a batch; of past work from a file nobody here knows which page its workers saw."""
    facts: dict[str, object] = {
        "name": batch.name,
        "source": batch.source.value,
        "assignments": batch.assignments,
        "reward_cents": batch.reward_cents,
    }
    if batch.source is JudgementSource.IMPORT:
        return facts
    return {
        **facts,
        "template": batch.template,
        "template_sha256": known.wordings.get(batch.name, []),
        "direction": batch.direction,
        "seed": batch.seed,
    }


class MadeCounts(EnvironmentCounts):
    """How a release was made."""

    manifest_sha256: Annotated[str, "hash of the release's manifest.json"]
    recipe: Annotated[str, "repair: original pairs stay unless refused; paper: verified and rated ones alone"]
    with_originals: Annotated[bool | None, "whether originals that nothing contradicts were kept"]
    aggregator: Annotated[str, "how several answers became one"]


@printed_by("build-dataset")
class BuildCounts(MadeCounts, SummaryCounts):
    """How a release was made, and what it holds."""

    ids_checked: Annotated[int, "ids that `--check-privacy` looked for; 0 without it"]
    machine_labels: Annotated[int, "pairs that a machine labelled; 0 with `--humans-only`"]
    certificate: Annotated[
        dict[str, Any] | None, "every figure of the certificate; null where no complete audit gives one"
    ]


def build_dataset(
    settings: Settings,
    out: Path,
    environment: Environment | None = None,
    options: ReleaseOptions = ReleaseOptions(),
    *,
    check_privacy: bool = False,
    replace_earlier: bool = False,
) -> StageResult:
    """Write a release of one environment's judgements merged with the other sources.

    Args:
        check_privacy: prove before writing that no file holds the raw id of a worker, an assignment or a HIT, or a
            plain hash of one.
        replace_earlier: write over another release that the folder holds.

    Raises:
        ReleaseError: there is nothing to release, the folder holds something else, or a file would give an id away.
        DatasetError: a list of queries cannot be read, or names what the data set lacks.
    """
    release_name = options.name or out.absolute().name
    with open_context(settings, environment, unposted=Environment.LIVE) as context:
        session = context.session
        with reading(session):
            facts = _with_queries(release_facts(context), options.queries)
            data = release_input(context, facts, release_name, options)
            data, uncertified = with_certificate(context, data, facts.exclusions)
            undecided, ids = facts.undecided, facts.private_ids if check_privacy else {}
            del facts  # a record for each submission, which the files no longer need
        # What the lists are called; their folders are nobody's business.
        names = {direction.value: file.name for direction, file in options.queries.given.items()}
        data = replace(
            data,
            salt=releases.salt(session, release_name),
            configuration={**data.configuration, **({"query_lists": names} if names else {})},
        )
        session.commit()
        written = write_release(out, data, private_ids=ids, replace=replace_earlier)
        flags = {releases.HUMANS_ONLY: options.humans_only, "--with-texts": options.with_texts}
        kept = [flag for flag, given in flags.items() if given]
        for direction in options.queries.given:
            kept += [_LISTED_BY[direction], names[direction.value]]
        releases.set_built(
            session,
            releases.ReleaseRow(
                release_name,
                written.manifest_sha256,
                asdict(options.rules),
                tuple(kept),
                data.environment,
                held=written.summary.held,
                queries={direction.value: data.queries[direction] for direction in options.queries.given},
            ),
        )
        session.commit()
    result = _result(data, written, undecided, ids)
    return replace(result, warnings=(*result.warnings, uncertified)) if uncertified else result


def _with_queries(facts: ReleaseFacts, lists: QueryLists) -> ReleaseFacts:
    """The facts with the queries that are named, in place of those that were proposed for."""
    chosen = dict(facts.queries)
    for direction, file in lists.given.items():
        items = facts.image_ids if direction is Direction.I2T else facts.caption_ids
        surrogates = {external: surrogate for surrogate, external in items.items()}
        chosen[direction] = tuple(query_ids(file, direction, surrogates, facts.dataset.pair_sides))
    return replace(facts, queries=chosen)


def _result(
    data: ReleaseInput, written: WrittenRelease[Summary], undecided: int, ids: Mapping[str, Collection[str]]
) -> StageResult:
    summary = written.summary
    warnings = list(data.warnings)
    if undecided:
        warnings.append(
            f"{several(undecided, 'submission')} not decided yet, so the answers are not in this release; run `mitl "
            "harvest` and `mitl review`"
        )
    if summary.unanswered:
        warnings.append(
            f"no usable answer yet on {summary.unanswered:,} of {several(summary.proposed, 'candidate pair')}; matches "
            "there that nothing else tells are missing in this release (`mitl status` says where they are)"
        )
    if not any(data.queries.values()):
        warnings.append(
            "this project does not know which images and captions were queries, so the two JSONs are empty; if you "
            "need them, name the queries with --image-query-ids and --caption-query-ids"
        )
    ways = data.form.way_names
    rows = tuple(
        (
            ways[direction],
            len(data.queries[direction]),
            summary.queries_listed[direction],
            summary.query_positives[direction],
        )
        for direction in Direction
    )
    certificate = None if data.audit is None else data.audit.certificate
    told = f"{several(summary.positives, 'positive')} from {several(summary.usable, 'usable judgement')}"
    counts: BuildCounts = {
        "environment": data.environment.value,
        "manifest_sha256": written.manifest_sha256,
        "recipe": data.rules.recipe.value,
        "with_originals": data.rules.with_originals,
        "aggregator": data.rules.aggregator.value,
        **summary.as_json(),
        "ids_checked": sum(map(len, ids.values())),
        "machine_labels": machine_counts(data)[0],
        "certificate": None if certificate is None else certificate.as_json(),
    }
    paths: ReleasePaths = {"release": str(written.folder)}
    return StageResult(
        status="done" if written.changed else "nothing_to_do",
        counts=counts,
        paths=paths,
        warnings=tuple(warnings),
        tables=(Table("", ("direction", "queries", "with positives", "positives"), rows),),
        lines=written_lines(data, written, told, ids, certificate.lines() if certificate else ()),
        next=f"mitl evaluate --release {shlex.quote(str(written.folder))}; mitl report"
        if any(data.queries.values())
        else "mitl report",
    )


def written_lines(
    data: MadeOf,
    written: WrittenRelease[Any],
    told: str,
    ids: Mapping[str, Collection[str]],
    further: Sequence[str] = (),
) -> tuple[str, ...]:
    """What a release holds, or that it was there already, what else is to say, and what scans of texts and ids found.

    Args:
        ids: by kind, those that ``--check-privacy`` looked for.
    """
    lines = [
        f"{release_words(data.name)}: {told}"
        if written.changed
        else f"nothing to do: {written.folder} holds exactly this release already",
        *further,
    ]
    if data.texts is not None:
        lines.append(data.texts.line)
    if ids:
        checked, short = (sum(map(count, ids.values())) for count in (len, short_ids))
        limits = f"under {MIN_ID} characters or {MIN_DIGITS} digits"
        alone = f"; {short:,} of them, {limits}, were looked for as hashes alone"
        lines.append(
            f"privacy: none of {checked:,} ids of workers, assignments and HITs is in it, as it is or hashed"
            + (alone if short else "")
        )
    return tuple(lines)
