"""Results by submission, one row each: which layout a file has, and what its rows say of their submissions.

Known layouts: the requester site's batch CSV (``HITId`` … ``Answer.*``), the results of the command line tools (TSV,
lower-case columns), and rows of ``list_assignments_for_hit`` as boto3 gives them, with the document in ``Answer``.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mitl.core.pricing import parse_dollars
from mitl.crowd.answer_parts import CrowdFormError, crowd_form_fields
from mitl.db.base import MOST_ROW
from mitl.errors import AnswerError, DatasetError, UsageError
from mitl.protocol.answer_xml import answer_fields

_ZONES = {
    **dict.fromkeys(("UTC", "GMT", "WET"), 0),
    **dict.fromkeys(("CET", "WEST"), 1),
    **dict.fromkeys(("EET", "CEST"), 2),
    "EEST": 3,
    "EDT": -4,
    **dict.fromkeys(("EST", "CDT"), -5),
    **dict.fromkeys(("CST", "MDT"), -6),
    **dict.fromkeys(("MST", "PDT"), -7),
    **dict.fromkeys(("PST", "AKDT"), -8),
    "AKST": -9,
    "HST": -10,
}
"""Hours ahead of UTC; in such files CST is the American one."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# As in "Sat Oct 07 03:51:58 PDT 2017", whatever the machine's language.
_SPELLED = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d{1,2}):(\d\d):(\d\d) ([A-Z]{1,4}) (\d{4})", re.ASCII
)
_EPOCH = re.compile(r"(\d{9,10})(\d{3})?(?:\.(\d{1,6})\d*)?", re.ASCII)


def read_time(text: str) -> dt.datetime | None:
    """The time in UTC; None where it cannot be told for sure, as without a zone.

    Read are ``Sat Oct 07 03:51:58 PDT 2017``, ISO 8601 with an offset, and seconds or milliseconds since 1970.
    """
    try:
        return _spelled(text) or _epoch(text) or _iso(text)
    except (ValueError, OverflowError):
        return None


def _spelled(text: str) -> dt.datetime | None:
    match = _SPELLED.fullmatch(text)
    if match is None or match[1] not in _MONTHS or match[6] not in _ZONES:
        return None
    month, zone = _MONTHS.index(match[1]) + 1, dt.timezone(dt.timedelta(hours=_ZONES[match[6]]))
    day, hour, minute, second, year = (int(match[place]) for place in (2, 3, 4, 5, 7))
    return dt.datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(dt.UTC)


def _epoch(text: str) -> dt.datetime | None:
    match = _EPOCH.fullmatch(text)
    if match is None or (match[2] and match[3]):
        return None
    micros = int(match[2]) * 1000 if match[2] else int((match[3] or "0").ljust(6, "0"))
    return dt.datetime.fromtimestamp(int(match[1]), dt.UTC).replace(microsecond=micros)


def _iso(text: str) -> dt.datetime | None:
    time = dt.datetime.fromisoformat(text)
    return None if time.tzinfo is None else time.astimezone(dt.UTC)


ANSWER_PREFIX, INPUT_PREFIX = "Answer.", "Input."
TASK_ANSWERS = "taskAnswers"
INDEX_COLUMNS = ("", "Unnamed: 0")
"""How data frames name the column of their row numbers."""

_SITE_COLUMNS = """
    HITTypeId HITGroupId Title Description Keywords CreationTime AssignmentDurationInSeconds AutoApprovalDelayInSeconds
    Expiration NumberOfSimilarHITs LifetimeInSeconds AutoApprovalTime ApprovalTime RejectionTime RequesterFeedback
    WorkTimeInSeconds LifetimeApprovalRate Last30DaysApprovalRate Last7DaysApprovalRate Approve Reject
"""
_TOOL_COLUMNS = """
    hittypeid title description keywords creationtime numavailable numpending numcomplete hitstatus reviewstatus
    assignmentduration autoapprovaldelay hitlifetime viewhit autoapprovaltime assignmentapprovaltime
    assignmentrejecttime deadline feedback reject
"""
_API_COLUMNS = ("AutoApprovalTime", "ApprovalTime", "RejectionTime", "Deadline", "RequesterFeedback")


@dataclass(frozen=True, slots=True)
class Layout:
    """The names that a kind of file has for what every submission has; None where it lacks it."""

    kind: str
    hit: str | None
    assignment: str
    worker: str
    status: str | None = None
    accepted: str | None = None
    submitted: str | None = None
    annotation: str | None = None
    reward: str | None = None
    wanted: str | None = None
    """Assignments of the HIT."""
    document: str | None = None
    """The column of the answer document."""
    others: frozenset[str] = field(default_factory=frozenset)
    prefixes: tuple[str, ...] = ()

    @property
    def needed(self) -> tuple[str, ...]:
        """Without these columns a file is not of this layout."""
        return tuple(filter(None, (self.hit, self.assignment, self.worker, self.status, self.document)))

    def knows(self, column: str) -> bool:
        """Whether the layout itself explains this column."""
        named = (self.accepted, self.submitted, self.annotation, self.reward, self.wanted)
        return (
            column in self.needed
            or column in named
            or column in self.others
            or column.startswith(self.prefixes)
        )


BATCH_CSV = Layout(
    kind="batch_csv",
    hit="HITId",
    assignment="AssignmentId",
    worker="WorkerId",
    status="AssignmentStatus",
    accepted="AcceptTime",
    submitted="SubmitTime",
    annotation="RequesterAnnotation",
    reward="Reward",
    wanted="MaxAssignments",
    others=frozenset(_SITE_COLUMNS.split()),
    prefixes=(INPUT_PREFIX, ANSWER_PREFIX),
)
COMMAND_LINE = Layout(
    kind="command_line",
    hit="hitid",
    assignment="assignmentid",
    worker="workerid",
    status="assignmentstatus",
    accepted="assignmentaccepttime",
    submitted="assignmentsubmittime",
    annotation="annotation",
    reward="reward",
    wanted="assignments",
    others=frozenset(_TOOL_COLUMNS.split()),
    prefixes=(ANSWER_PREFIX,),
)
ASSIGNMENT_LIST = Layout(
    kind="assignment_list",
    hit="HITId",
    assignment="AssignmentId",
    worker="WorkerId",
    status="AssignmentStatus",
    accepted="AcceptTime",
    submitted="SubmitTime",
    document="Answer",
    others=frozenset(_API_COLUMNS),
)
LAYOUTS = (BATCH_CSV, COMMAND_LINE, ASSIGNMENT_LIST)


@dataclass(frozen=True, slots=True)
class RowSubmission:
    """What a row says of its submission."""

    hit_id: str
    assignment_id: str
    worker_id: str
    status: str = ""
    annotation: str = ""
    accepted_at: dt.datetime | None = None
    submitted_at: dt.datetime | None = None
    reward_cents: int | None = None
    wanted: int = 1
    """Assignments of its HIT, 1 where the file does not say."""
    odd_times: tuple[str, ...] = ()
    """Times that could not be read, as they stand in the file."""


def find_layout(columns: Sequence[str]) -> Layout | None:
    """The layout whose columns these are; an answer document of its own tells boto3's rows from a batch CSV."""
    present = set(columns)
    fitting = [layout for layout in LAYOUTS if present.issuperset(layout.needed)]
    return max(fitting, key=lambda layout: len(layout.needed), default=None)


def require_known(
    kind: str,
    knows: Callable[[str], bool],
    columns: Sequence[str],
    name: str,
    keep: Sequence[str] = (),
) -> None:
    """Refuse a file with a column that nobody explains, lest answers be passed over.

    Args:
        kind: what the layout is called.
        knows: whether layout or mapping explains a column.
        keep: shell patterns of columns that are said to hold nothing to be read.

    Raises:
        DatasetError: naming the first of them.
    """
    for column in columns:
        kept = any(fnmatchcase(column, pattern) for pattern in keep)
        if column not in INDEX_COLUMNS and not knows(column) and not kept:
            raise DatasetError(
                f"{name!r} has the column {column!r}, which its layout ({kind}) does not know; if it holds nothing "
                f"to be read, say keep = [{column!r}] in the file that --columns names"
            )


def submission(layout: Layout, cells: Mapping[str, str]) -> RowSubmission:
    """What a row says of its submission, all of it optional but the ids."""
    times = {name: _cell(cells, name) for name in (layout.accepted, layout.submitted) if name}
    read = {name: read_time(text) for name, text in times.items() if text}
    return RowSubmission(
        hit_id=_cell(cells, layout.hit),
        assignment_id=_cell(cells, layout.assignment),
        worker_id=_cell(cells, layout.worker),
        status=_status(_cell(cells, layout.status)),
        annotation=_cell(cells, layout.annotation),
        accepted_at=read.get(layout.accepted or ""),
        submitted_at=read.get(layout.submitted or ""),
        reward_cents=_cents(_cell(cells, layout.reward)),
        wanted=_count(_cell(cells, layout.wanted)),
        odd_times=tuple(times[name] for name, time in read.items() if time is None),
    )


def own_answers(layout: Layout, cells: Mapping[str, str]) -> str | list[tuple[str, str]]:
    """The answer document that the row holds, else its answers by field; an empty cell is not an answer."""
    if layout.document is not None:
        return cells[layout.document]
    return [
        (column.removeprefix(ANSWER_PREFIX), cell)
        for column, cell in cells.items()
        if column.startswith(ANSWER_PREFIX) and cell
    ]


def expanded_cells(layout: Layout, cells: Mapping[str, str]) -> dict[str, str]:
    """The cells, and what stands within them: the fields of an answer document or a crowd-form as ``Answer.<field>``.

    A field that comes several times has its values joined by ``|``, as the requester site does.

    Raises:
        AnswerError: the document or the crowd-form cannot be read.
    """
    expanded = dict(cells)
    if layout.document is not None:
        expanded |= _joined(answer_fields(cells[layout.document]))
    packed = expanded.get(ANSWER_PREFIX + TASK_ANSWERS)
    if packed:
        try:
            expanded |= _joined((name, value or "") for name, value in crowd_form_fields(packed))
        except CrowdFormError as error:
            raise AnswerError(f"{TASK_ANSWERS} is {error}") from error
    return expanded


def _joined(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    by_column: dict[str, list[str]] = {}
    for name, value in fields:
        by_column.setdefault(ANSWER_PREFIX + name, []).append(value)
    return {name: "|".join(values) for name, values in by_column.items()}


def _cell(cells: Mapping[str, str], column: str | None) -> str:
    return "" if column is None else cells.get(column, "").strip()


def _status(text: str) -> str:
    """As the requester API writes what was decided, whatever its case; anything else as it stands."""
    return text.capitalize() if text.lower() in ("approved", "rejected") else text


def _cents(text: str) -> int | None:
    # Half a cent, another currency, more than a column holds: the row keeps it as it is.
    try:
        cents = parse_dollars(text) if text else None
    except UsageError:
        return None
    return None if cents is None or cents > MOST_ROW else cents


def _count(text: str) -> int:
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,5}", text) else 1
