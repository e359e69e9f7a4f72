"""Storing submissions of past work: a batch that is over, its HITs, documents and answers, in one transaction."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sqlalchemy.orm import Session

from mitl.core.arrays import contains, pack_ids
from mitl.crowd.batch_csv import RowSubmission, find_layout
from mitl.crowd.batch_csv import submission as row_submission
from mitl.crowd.column_map import ColumnMap
from mitl.crowd.context import Context
from mitl.crowd.paying import APPROVED, REJECTED
from mitl.crowd.result_file import KeptRows, ResultFile, kept_rows, row_document
from mitl.db.store import answers as answer_store
from mitl.db.store import columns
from mitl.db.store import hits as hit_store
from mitl.db.store import imports as import_store
from mitl.db.store import items as item_store
from mitl.db.store import parses as parse_store
from mitl.db.store import submissions as submission_store
from mitl.db.store.imports import ImportRow, PastHit
from mitl.db.store.statements import chunks
from mitl.db.store.submissions import NewSubmission
from mitl.errors import DatasetError
from mitl.records import Decision, Environment, Finding, JudgementSource, Label, Pair
from mitl.records.frames import NONE, is_asked
from mitl.records.questions import RATIONALE
from mitl.records.results import listed
from mitl.stages.harvesting.deriving import (
    PairedRow,
    ProjectItems,
    Reading,
    derive,
    paired,
    read_rows,
    reading_of,
)
from mitl.stages.past_work.own import new_submission

NOT_DECIDED = "not_decided"
MAX_SHOWN = 5
_Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class PastSubmission:
    """A submission of somebody else's batch, or of one whose HITs nobody can name."""

    page: str
    """Names the HIT within the environment where it has no id."""
    said: RowSubmission
    answers: str | tuple[tuple[str, str], ...]
    """The fields that the worker filled in, or the document that holds them."""
    kept: KeptRows
    read: PairedRow


@dataclass(frozen=True, slots=True)
class StoredPast:
    """What was written."""

    batch: str
    submissions: int
    """That were not here before."""
    hits: int
    """Likewise."""
    decided: int
    """Submissions that were here and were decided about since."""


@dataclass(frozen=True, slots=True)
class PastBatch:
    """What the batch of past work is written down as."""

    reading: Reading
    reward_cents: int
    template: str


def store_past(
    context: Context,
    file: ResultFile,
    items: ProjectItems,
    past: Sequence[PastSubmission],
    about: PastBatch,
) -> StoredPast:
    """Write these submissions with all that follows from them; those that are here already are read again."""
    session = context.session
    imported = import_store.imports(session)
    stays: dict[_Rows, str] = {}
    said_else: dict[int, RowSubmission] = {}
    if file.sha256 in imported:
        before = reading_of(imported[file.sha256]).mapping
        for each in Environment:
            tokens_of, changed = _name_anew(session, each, file.sha256, before, about.reading.mapping)
            said_else |= changed
            if each is context.environment:
                stays = tokens_of
    tokens = [stays.get(one.kept.rows) or _token(context.environment, one) for one in past]
    hit_ids = import_store.past_hits(session, sorted(set(tokens)))
    new_hits = _new_hits(past, tokens, hit_ids)
    batch_id = _batch(context, about, new_hits, hit_ids)
    hit_ids |= import_store.add_past_hits(session, batch_id, new_hits)
    readings = {sha: reading_of(row) for sha, row in imported.items()} | {file.sha256: about.reading}
    decided = _met_before(context, file, past, imported, readings, items)
    added = submission_store.add_submissions(
        session,
        context.environment,
        [_new(submission, hit_ids[token]) for submission, token in zip(past, tokens, strict=True)],
    )
    by_name = {(one.said.assignment_id, one.said.worker_id): one.said for one in past}
    new = {id_: by_name[one.mturk_assignment_id, one.worker] for id_, one in added.items()}
    _decide(session, {**said_else, **new, **decided})
    if file.sha256 in imported:
        import_store.set_columns(session, file.sha256, about.reading.as_json())
    else:
        remember(session, file, about.reading, batch_id)
    derive(session, readings, items, sorted({hit_ids[token] for token in tokens}))
    return StoredPast(hit_store.batch(session, batch_id).name, len(added), len(new_hits), len(decided))


def _name_anew(
    session: Session, environment: Environment, sha256: str, before: ColumnMap | None, now: ColumnMap | None
) -> tuple[dict[_Rows, str], dict[int, RowSubmission]]:
    """Give the submissions that a file brought in the ids and times of another mapping, lest all of them come again.

    Returns:
        Rows → token of the HIT that they stay on; and what the file says now of submissions whose status is another.

    Raises:
        DatasetError: another submission has such ids.
    """
    tokens: dict[_Rows, str] = {}
    named: dict[int, NewSubmission] = {}
    changed: dict[int, RowSubmission] = {}
    for document, token in import_store.documents_of_file(session, environment, sha256):
        kept = kept_rows(document.raw_xml)
        if kept is None or kept.sha256 != sha256:
            continue
        tokens[kept.rows] = token
        was, said = _said(kept, before), _said(kept, now)
        if was is None or said is None or said == was or not (said.assignment_id and said.worker_id):
            continue
        if was.status != said.status:
            changed[document.id] = said
        named[document.id] = new_submission(said, document.hit_id, said.status, document.raw_xml)
    taken = submission_store.rename(session, environment, named)
    if taken is not None:
        raise DatasetError(
            f"by this mapping the file holds submission {taken.mturk_assignment_id} of worker {taken.worker}, which "
            "another file brought in; restore a backup of before that one, and bring it in last"
        )
    return tokens, changed


def _said(kept: KeptRows, mapping: ColumnMap | None) -> RowSubmission | None:
    """None for the official layout, which names nobody."""
    layout = None if mapping is None else mapping.layout(find_layout(kept.columns))
    return None if layout is None else row_submission(layout, kept.cells)


def known_only(past: Sequence[PastSubmission], name: str, *, skip_unknown: bool) -> list[PastSubmission]:
    """The submissions that say something of the project's pairs.

    Raises:
        DatasetError: some answers are about images or captions that the project lacks, and were not to be skipped;
            or all are.
    """
    unknown = Counter(words for submission in past for words in submission.read.unknown)
    if unknown and not skip_unknown:
        raise DatasetError(
            f"answers in {name!r} are about pairs that this project lacks, {unknown.total():,} in all: "
            f"{_shown(unknown)}; load the data set that they belong to, or leave them out with --skip-unknown"
        )
    with_answers = [
        submission for submission in past if submission.read.answers or not submission.read.unknown
    ]
    if past and not with_answers:
        raise DatasetError(
            f"none of the {len(past):,} submissions in {name!r} is about a pair of this project, as {_shown(unknown)}"
        )
    return with_answers


def _shown(counts: Counter[str]) -> str:
    return listed([f"{words} ({count:,})" for words, count in counts.most_common()], MAX_SHOWN, "; ")


def _token(environment: Environment, one: PastSubmission) -> str:
    """In the place of a request token: HITs are unique by it."""
    name = f"import:{environment}:{one.said.hit_id or one.page}"
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:48]


def _new_hits(past: Sequence[PastSubmission], tokens: Sequence[str], known: dict[str, int]) -> list[PastHit]:
    by_token: dict[str, list[PastSubmission]] = defaultdict(list)
    for submission, token in zip(past, tokens, strict=True):
        if token not in known:
            by_token[token].append(submission)
    return [
        PastHit(token, of_hit[0].said.hit_id or None, max(len(of_hit), *(one.said.wanted for one in of_hit)))
        for token, of_hit in by_token.items()
    ]


def _batch(context: Context, about: PastBatch, new_hits: Sequence[PastHit], known: dict[str, int]) -> int:
    """A new batch for new HITs; else the one that holds the HITs already."""
    session = context.session
    if not new_hits:
        return hit_store.hits_of(session, [next(iter(known.values()))])[0].batch_id
    now = context.now()
    return hit_store.add_batch(
        session,
        hit_store.NewBatch(
            round_id=hit_store.open_round(session, item_store.dataset(session).id, context.environment, now),
            environment=context.environment,
            direction="both",
            template=about.template,
            reward_cents=about.reward_cents,
            assignments=max(hit.assignments for hit in new_hits),
            seed=context.settings.seed,
            planned_at=now,
            source=JudgementSource.IMPORT,
        ),
    ).id


def _new(one: PastSubmission, hit_id: int) -> NewSubmission:
    answers = one.answers if isinstance(one.answers, str) else list(one.answers)
    # What a file shows as undecided was paid long ago; nothing here may try to pay for it.
    status = REJECTED if one.said.status == REJECTED else APPROVED
    return new_submission(one.said, hit_id, status, row_document(answers, one.kept))


def _met_before(
    context: Context,
    file: ResultFile,
    past: Sequence[PastSubmission],
    imported: Mapping[str, ImportRow],
    readings: Mapping[str, Reading],
    items: ProjectItems,
) -> dict[int, RowSubmission]:
    """Those that another file brought in before they were approved and that were decided since, by row.

    Raises:
        DatasetError: a submission has the ids of one that another file brought in, and other answers.
    """
    decided = {}
    for window in chunks(past):
        names = {one.said.assignment_id for one in window}
        stored = submission_store.documents(context.session, context.environment, names)
        noted = answer_store.findings_of(context.session, [id_ for id_, _, _ in stored.values()])
        for one in window:
            said = one.said
            id_, status, document = stored.get((said.assignment_id, said.worker_id), (0, "", ""))
            kept = kept_rows(document)
            if kept is None or kept.sha256 == file.sha256 or kept.sha256 not in readings:
                continue
            reading, name = readings[kept.sha256], imported[kept.sha256].name
            before = paired(read_rows(reading, kept), items, numbered=reading.numbered)
            if _labels(before) != _labels(one.read):
                raise DatasetError(
                    f"{file.name!r} gives submission {said.assignment_id} of worker {said.worker_id} other answers "
                    f"than {name!r}, which brought it in; if each file counts its submissions anew, put something that "
                    f"differs by file before the ids; if {name!r} was mapped wrongly, first bring it in again with "
                    "the right mapping"
                )
            then = _said(kept, reading.mapping)
            is_open = any(finding.code == NOT_DECIDED for finding in noted.get(id_, ()))
            # Nobody rejects what they approved: a file that says so is older than the one that said the other.
            is_news = {
                APPROVED: is_open or status == REJECTED,
                REJECTED: status != REJECTED and (is_open or then is None or not then.status),
            }
            if is_news.get(said.status):
                decided[id_] = said
    return decided


def _labels(read: PairedRow) -> set[tuple[Pair, Label | None]]:
    return {(pair, answer.label) for pair, answer in read.answers if answer is not None}


def _decide(session: Session, decided: Mapping[int, RowSubmission]) -> None:
    """What its requester approved counts, what they rejected does not."""
    decisions: dict[Decision, list[int]] = defaultdict(list)
    findings: dict[int, list[Finding]] = {}
    undecided: dict[int, list[Finding]] = {}
    for id_, submission in decided.items():
        decisions[Decision.REJECT if submission.status == REJECTED else Decision.APPROVE].append(id_)
        findings[id_] = [
            Finding(parse_store.BAD_VALUE, f"time {text[:80]!a} cannot be read")
            for text in submission.odd_times
        ]
        if submission.status not in (APPROVED, REJECTED, ""):
            note = f"the file says {submission.status[:40]!a}; its answers are used"
            undecided[id_] = [Finding(NOT_DECIDED, note)]
    for decision, ids in decisions.items():
        answer_store.set_decision(session, ids, decision)
        answer_store.set_status(session, ids, REJECTED if decision is Decision.REJECT else APPROVED)
    parse_store.add_all_findings(session, findings)
    parse_store.set_findings(session, (NOT_DECIDED,), undecided, decided)


def remember(session: Session, file: ResultFile, reading: Reading, batch_id: int) -> None:
    """Keep what the file is and how it was read, under the batch that its submissions belong to."""
    import_store.add_import(
        session,
        sha256=file.sha256,
        name=file.name,
        kind=reading.kind,
        columns=reading.as_json(),
        batch_id=batch_id,
        rows=len(file.rows),
        now=dt.datetime.now(dt.UTC),
    )


SAME = 0.95
"""Share of a file's answers on pairs judged here that another crowd would not reach: on four levels two people who
work well agree on some two thirds of the pairs, and then name other reasons."""

_Answer = tuple[int, ...]
"""Packed pair, label and the bits of each question: what the official layout tells answers apart by."""
_QUESTIONS = [question for question in RATIONALE if question.csv]


def refuse_doubles(context: Context, past: Sequence[PastSubmission], name: str) -> None:
    """Pass where the file's answers are other people's than those that are here.

    The official layout names no worker, so that only the answers themselves can tell.

    Raises:
        DatasetError: they are the same, answer for answer, wherever both know a pair.
    """
    answers = Counter(_given(past))
    if not answers:
        return
    stored = columns.judgement_columns(context.session, context.environment)
    here = Counter(_stored(stored, [answer[0] for answer in answers]))
    judged = {answer[0] for answer in here}
    met = sum(count for answer, count in answers.items() if answer[0] in judged)
    same = sum(min(count, here[answer]) for answer, count in answers.items())
    if met and same >= SAME * met:
        raise DatasetError(
            f"{same:,} of the {met:,} answers in {name!r} on pairs that were judged here are here already, reason for "
            "reason: it is this project's own release, or past work that was brought in under another name; nothing "
            "was brought in; if other people gave these answers, say --count-again"
        )


def _given(past: Iterable[PastSubmission]) -> Iterable[_Answer]:
    answers = [
        (pair, answer)
        for submission in past
        for pair, answer in submission.read.answers
        if answer is not None
    ]
    images, captions = (
        np.array([(pair.image_id, pair.caption_id) for pair, _ in answers], np.int64).reshape(-1, 2).T
    )
    for packed, (_, answer) in zip(pack_ids(images, captions).tolist(), answers, strict=True):
        if answer.label is not None:
            reasons = (question.bits(answer.given.get(question.name, ())) for question in _QUESTIONS)
            yield packed, answer.label.code - 1, *reasons


def _stored(answers: pd.DataFrame, pairs: Sequence[int]) -> Iterable[_Answer]:
    """Those on these pairs, usable or not, as a release may be older than a decision; none of controls or audits."""
    asked = np.unique(np.array(pairs, np.int64))
    is_asked_here = (
        is_asked(answers) & (answers["label"] != NONE) & contains(asked, answers["pair"].to_numpy())
    )
    asked_answers = answers.loc[
        is_asked_here, ["pair", "label", *(question.column for question in _QUESTIONS)]
    ]
    return zip(*(asked_answers[name].tolist() for name in asked_answers), strict=True)
