"""Somebody else's batch: its rows read by a mapping of columns."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from mitl.core.arrays import pack_each
from mitl.crowd.batch_csv import (
    ANSWER_PREFIX,
    Layout,
    RowSubmission,
    expanded_cells,
    own_answers,
    require_known,
)
from mitl.crowd.column_map import ColumnMap, require_pairs, shown_columns
from mitl.crowd.mapped_rows import MappedAnswer
from mitl.crowd.parsed_csv import (
    ANSWER_COLUMNS,
    KIND,
    OfficialJudgement,
    OfficialProposal,
    official_judgements,
    official_proposals,
    official_rows,
)
from mitl.crowd.result_file import KeptRows, ResultFile
from mitl.datasets.official import OFFICIAL_COLUMNS
from mitl.db.store import proposals as proposal_store
from mitl.db.store.proposals import AnnotatorRow
from mitl.errors import AnswerError, DatasetError
from mitl.records import AnnotatorKind, Direction, IdKind, Proposal
from mitl.records.frames import PROPOSALS, frame
from mitl.records.questions import RATIONALE
from mitl.records.results import listed
from mitl.stages.harvesting.deriving import ProjectItems, Reading, paired, read_rows
from mitl.stages.past_work.own import SubmissionRow
from mitl.stages.past_work.past import MAX_SHOWN, PastBatch, PastSubmission

PLAIN, WITH_REASONS = "pairs-plain", "pairs-rationale"
"""The wordings that past work is written down under: what its pages asked, not how."""


def require_mapping(
    file: ResultFile, layout: Layout, mapping: ColumnMap | None, rows: Sequence[SubmissionRow]
) -> ColumnMap:
    """The mapping that a foreign batch needs.

    Raises:
        DatasetError: there is none; the columns among which it is to be found are named.
    """
    if mapping is None:
        columns = {**dict.fromkeys(file.columns), **_columns_within(layout, rows)}
        telling = [column for column in columns if column.startswith(layout.prefixes or ANSWER_PREFIX)]
        telling += [column for column in columns if not layout.knows(column) and column not in telling]
        raise DatasetError(
            f"{file.name!r} is not of this project's HITs ({len(rows):,} submissions): say in a file, with --columns "
            f"MAP.toml, which column holds image, caption and label; it has {shown_columns(telling)}"
        )
    require_pairs(mapping)
    return mapping


def mapped_reading(
    file: ResultFile, layout: Layout, mapping: ColumnMap, rows: Sequence[SubmissionRow]
) -> Reading:
    """How the file is to be read.

    Raises:
        DatasetError: a mapped column is not in the file, or a column is not explained.
    """
    present = {**dict.fromkeys(file.columns), **_columns_within(layout, rows)}
    mapped = mapping.columns(present)
    require_known(
        layout.kind,
        lambda column: layout.knows(column) or column in mapped,
        file.columns,
        file.name,
        mapping.keep,
    )
    return Reading(layout.kind, mapping, mapping.places(present))


def past_of_foreign(
    file: ResultFile,
    layout: Layout,
    reading: Reading,
    items: ProjectItems,
    rows: Sequence[SubmissionRow],
) -> list[PastSubmission]:
    """What the rows say.

    Raises:
        DatasetError: labels or roles that the mapping has no word for.
    """
    submissions, unmapped, strange = [], Counter[str](), Counter[str]()
    for row in rows:
        kept = KeptRows(file.sha256, file.columns, (row.row.cells,))
        read = read_rows(reading, kept)
        unmapped.update(read.unmapped)
        strange.update(read.unmapped_roles)
        answers = own_answers(layout, row.cells)
        submissions.append(
            PastSubmission(
                page=row.submission.assignment_id,
                said=row.submission,
                answers=answers if isinstance(answers, str) else tuple(answers),
                kept=kept,
                read=paired(read, items, numbered=False),
            )
        )
    if unmapped:
        raise DatasetError(
            f"[labels] has no word for {_counted(unmapped)}; map each to yes, weak_yes, weak_no, no, skipped or "
            'image_failed, or all others by "*" = "skipped"'
        )
    if strange:
        raise DatasetError(
            f"[roles] has no word for {_counted(strange)}; map each to candidate, gold_positive or gold_negative"
        )
    return submissions


def _counted(values: Counter[str]) -> str:
    return listed([f"{value[:80]!r} ({count:,})" for value, count in values.most_common()], MAX_SHOWN)


def past_batch(reading: Reading, rows: Sequence[SubmissionRow]) -> PastBatch:
    """What the batch is written down as: the reward that most of its rows name."""
    rewards = Counter(row.submission.reward_cents for row in rows if row.submission.reward_cents is not None)
    chosen = {question.name for question in RATIONALE if question.choices}
    reasons = reading.mapping is not None and chosen & reading.mapping.sources.keys()
    ((reward, _),) = rewards.most_common(1) or [(0, 0)]
    return PastBatch(reading, reward, WITH_REASONS if reasons else PLAIN)


def _columns_within(layout: Layout, rows: Sequence[SubmissionRow]) -> Mapping[str, None]:
    """The columns that answer documents and crowd-forms within the rows amount to."""
    columns: dict[str, None] = {}
    for row in rows:
        try:
            columns.update(dict.fromkeys(expanded_cells(layout, row.cells)))
        except AnswerError:
            continue  # becomes a finding of that submission
    return columns


def read_official(
    file: ResultFile, mapping: ColumnMap | None, items: ProjectItems
) -> tuple[list[PastSubmission], list[OfficialProposal], PastBatch]:
    """The judgements in the file, each a submission of its own, and the proposals.

    Raises:
        DatasetError: a column that the layout does not know, or a row that cannot be read.
    """
    keep = mapping.keep if mapping else ()
    require_known(KIND, OFFICIAL_COLUMNS.__contains__, file.columns, file.name, keep)
    rows = official_rows(file)
    judgements = official_judgements(rows)
    reading = Reading(KIND, mapping, numbered=_is_numbered(judgements, items, file.name))
    past = [
        _submission(file, n, judgement, reading, items) for n, judgement in enumerate(judgements, start=1)
    ]
    proposals = official_proposals(rows, judgements, mapping.direction if mapping else None)
    return past, proposals, PastBatch(reading, 0, WITH_REASONS)


def store_proposals(
    session: Session,
    file: ResultFile,
    proposals: Sequence[OfficialProposal],
    items: ProjectItems,
    *,
    numbered: bool,
) -> int:
    """Write who proposed the pairs as a run of rankings that were read; returns how many proposals are of ours.

    Annotators that the project knows keep their configuration.
    """
    config = json.dumps(
        {
            "import": {"file": file.name, "sha256": file.sha256},
            "annotators": [],
            "queries": {direction.value: {"count": 0} for direction in Direction},
        },
        sort_keys=True,
    )
    run_hash = hashlib.sha256(f"import:{file.sha256}".encode()).hexdigest()[:16]
    if proposal_store.find_run(session, run_hash) is not None:
        return 0
    stored = []
    for mapped in proposals:
        pair = items.pair(
            MappedAnswer(mapped.image, mapped.caption, by_text=False, answer=None), numbered=numbered
        )
        if pair is not None:
            stored.append(Proposal(pair, mapped.model, mapped.direction, mapped.rank, mapped.score))
    annotators = {row.name: row for row in proposal_store.annotators(session)}
    names = dict.fromkeys(proposal.annotator for proposal in stored)
    origin = json.dumps({"import": file.sha256})
    rows = [
        annotators.get(name) or AnnotatorRow(name, AnnotatorKind.RANKING, origin, file.sha256)
        for name in names
    ]
    queries = {
        Direction.I2T: sorted({p.pair.image_id for p in stored if p.direction is Direction.I2T}),
        Direction.T2I: sorted({p.pair.caption_id for p in stored if p.direction is Direction.T2I}),
    }
    directions = tuple(Direction)
    columns = {
        "pair": pack_each(proposal.pair for proposal in stored),
        "annotator": [proposal.annotator for proposal in stored],
        "direction": [directions.index(proposal.direction) for proposal in stored],
        "rank": [proposal.rank for proposal in stored],
        "similarity": [proposal.similarity for proposal in stored],
    }
    proposal_store.add_run(session, run_hash, config, queries, rows, frame(PROPOSALS, columns))
    return len(stored)


def _submission(
    file: ResultFile, n: int, judgement: OfficialJudgement, reading: Reading, items: ProjectItems
) -> PastSubmission:
    """The file names nobody: the workers of a pair are told apart by number, and each pair is a page of its own."""
    kept = KeptRows(file.sha256, file.columns, tuple(row.cells for row in judgement.rows))
    name = file.sha256[:12]
    return PastSubmission(
        page=f"{file.sha256}:{judgement.image}:{judgement.caption}",
        said=RowSubmission("", f"{name}-{n}", f"unnamed-{name}-{judgement.nth}"),
        answers=tuple((column, kept.cells[column]) for column in ANSWER_COLUMNS),
        kept=kept,
        read=paired(read_rows(reading, kept), items, numbered=reading.numbered),
    )


def _is_numbered(judgements: Sequence[OfficialJudgement], items: ProjectItems, name: str) -> bool:
    """Whether the ids are a release's integers for ids that are texts.

    Raises:
        DatasetError: both can be, and mean different pairs.
    """
    if items.id_kind is IdKind.INTEGER:
        return False
    named = [MappedAnswer(one.image, one.caption, by_text=False, answer=None) for one in judgements]
    own, numbers = ([items.pair(one, numbered=numbered) for one in named] for numbered in (False, True))
    if None not in numbers and None in own:
        return True
    if None not in numbers and own != numbers:
        raise DatasetError(
            f"ids in {name!r} fit as the data set's own and as the numbers that a release shows for them; write the "
            "own ids under other columns, with one for the submission and one for the worker, named with --columns"
        )
    return not any(own)
