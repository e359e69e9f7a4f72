"""Somebody else's batch: its rows read by a mapping of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mitl.crowd.batch_csv import ANSWER_PREFIX, Layout, expanded_cells, own_answers, require_known
from mitl.crowd.column_map import ColumnMap, require_pairs, shown_columns
from mitl.crowd.result_file import ResultFile
from mitl.crowd.row_xml import KeptRows
from mitl.errors import AnswerError, DatasetError
from mitl.stages.harvesting.deriving import paired
from mitl.stages.harvesting.reading import ProjectItems, Reading, read_rows
from mitl.stages.past_work.past import MAX_SHOWN, PastBatch, PastSubmission
from mitl.stages.past_work.rows import SubmissionRow

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
    found, unmapped, strange = [], Counter[str](), Counter[str]()
    for row in rows:
        kept = KeptRows(file.sha256, file.columns, (row.row.cells,))
        read = read_rows(reading, kept)
        unmapped.update(read.unmapped)
        strange.update(read.unmapped_roles)
        answers = own_answers(layout, row.cells)
        said = row.submission
        found.append(
            PastSubmission(
                hit_id=said.hit_id or None,
                page=said.assignment_id,
                wanted=said.wanted,
                assignment_id=said.assignment_id,
                worker_id=said.worker_id,
                status=said.status,
                accepted_at=said.accepted_at,
                submitted_at=said.submitted_at,
                answers=answers if isinstance(answers, str) else tuple(answers),
                kept=kept,
                read=paired(read, items, numbered=False),
                odd_times=said.odd_times,
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
    return found


def _counted(values: Counter[str]) -> str:
    shown = ", ".join(f"{value[:80]!r} ({count:,})" for value, count in values.most_common(MAX_SHOWN))
    return shown + (f" and {len(values) - MAX_SHOWN:,} more" if len(values) > MAX_SHOWN else "")


def past_batch(reading: Reading, rows: Sequence[SubmissionRow]) -> PastBatch:
    """What the batch is written down as: the reward that most of its rows name."""
    rewards = Counter(row.submission.reward_cents for row in rows if row.submission.reward_cents is not None)
    reasons = reading.mapping is not None and {"shortcoming", "concept"} & reading.mapping.sources.keys()
    ((reward, _),) = rewards.most_common(1) or [(0, 0)]
    return PastBatch(reading, reward, WITH_REASONS if reasons else PLAIN)


def _columns_within(layout: Layout, rows: Sequence[SubmissionRow]) -> Mapping[str, None]:
    """The columns that answer documents and crowd-forms within the rows amount to."""
    found: dict[str, None] = {}
    for row in rows:
        try:
            found.update(dict.fromkeys(expanded_cells(layout, row.cells)))
        except AnswerError:
            continue  # becomes a finding of that submission
    return found
