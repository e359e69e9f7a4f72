"""The official ``mturk_parsed.csv``: its judgements and who proposed their pairs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from sqlalchemy.orm import Session

from mitl.crowd.batch_csv import require_known
from mitl.crowd.column_map import ColumnMap
from mitl.crowd.mapped_rows import MappedAnswer
from mitl.crowd.parsed_answer import ANSWER_COLUMNS
from mitl.crowd.parsed_csv import (
    KIND,
    OfficialJudgement,
    OfficialProposal,
    official_judgements,
    official_proposals,
    official_rows,
)
from mitl.crowd.result_file import ResultFile
from mitl.crowd.row_xml import KeptRows
from mitl.datasets.official import OFFICIAL_COLUMNS
from mitl.db.store import proposals as proposal_store
from mitl.db.store.proposals import AnnotatorRow
from mitl.records import AnnotatorKind, Direction, IdKind, Proposal
from mitl.stages.harvesting.deriving import paired
from mitl.stages.harvesting.reading import ProjectItems, Reading, read_rows
from mitl.stages.past_work.foreign import WITH_REASONS
from mitl.stages.past_work.past import PastBatch, PastSubmission


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
    reading = Reading(KIND, mapping, numbered=_is_numbered(judgements, items))
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
    found = []
    for one in proposals:
        pair = items.pair(MappedAnswer(one.image, one.caption, by_text=False, answer=None), numbered=numbered)
        if pair is not None:
            found.append(Proposal(pair, one.model, one.direction, one.rank, one.score))
    known = {row.name: row for row in proposal_store.annotators(session)}
    names = dict.fromkeys(proposal.annotator for proposal in found)
    origin = json.dumps({"import": file.sha256})
    rows = [
        known.get(name) or AnnotatorRow(name, AnnotatorKind.RANKING, origin, file.sha256) for name in names
    ]
    queries = {
        Direction.I2T: sorted({p.pair.image_id for p in found if p.direction is Direction.I2T}),
        Direction.T2I: sorted({p.pair.caption_id for p in found if p.direction is Direction.T2I}),
    }
    proposal_store.add_run(session, run_hash, config, queries, rows, found)
    return len(found)


def _submission(
    file: ResultFile, n: int, judgement: OfficialJudgement, reading: Reading, items: ProjectItems
) -> PastSubmission:
    """The file names nobody: the workers of a pair are told apart by number, and each pair is a page of its own."""
    kept = KeptRows(file.sha256, file.columns, tuple(row.cells for row in judgement.rows))
    name = file.sha256[:12]
    return PastSubmission(
        hit_id=None,
        page=f"{file.sha256}:{judgement.image}:{judgement.caption}",
        wanted=1,
        assignment_id=f"{name}-{n}",
        worker_id=f"unnamed-{name}-{judgement.nth}",
        status="",
        accepted_at=None,
        submitted_at=None,
        answers=tuple((column, kept.cells[column]) for column in ANSWER_COLUMNS),
        kept=kept,
        read=paired(read_rows(reading, kept), items, numbered=reading.numbered),
    )


def _is_numbered(judgements: Sequence[OfficialJudgement], items: ProjectItems) -> bool:
    """Whether the ids are a release's integers for ids that are texts."""
    if items.id_kind is IdKind.INTEGER:
        return False
    return not any(one.image in items.images and one.caption in items.captions for one in judgements)
