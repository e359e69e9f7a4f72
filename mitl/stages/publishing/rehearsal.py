"""Every request of a plan, made by the client's own code and sent nowhere: what is not right shows before it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import botocore.session
from botocore import xform_name
from botocore.validate import ParamValidator

from mitl.crowd.client import MTurkClient
from mitl.crowd.transport import Transport
from mitl.db.store.hits import BatchRow, HitRow
from mitl.errors import CrowdError, PackingError, TemplateError
from mitl.hits.validation import check_batch, check_page, check_request
from mitl.progress import Progress
from mitl.records import HitItem, HitState
from mitl.stages.harvesting.exclusion import exclusion_qualification
from mitl.stages.publishing.bill import Terms
from mitl.stages.publishing.hit_calls import create_hit, create_hit_type
from mitl.stages.publishing.pages import Pages, Wording
from mitl.stages.publishing.planning import Plan, token

T = TypeVar("T")
Keep = Callable[[str, Mapping[str, Any]], None]
"""Is given each request that would change something: the operation's name and its parameters."""


@dataclass(frozen=True, slots=True)
class DueHit:
    """A HIT of a plan as it would be posted."""

    hit: HitRow
    items: Sequence[HitItem]
    wording: Wording
    reward_cents: int


def due_hits(
    plan: Plan,
    terms: Terms,
    batches: Mapping[int, BatchRow],
    wordings: Mapping[int, Wording],
    *,
    project_id: str,
    batch: str,
) -> list[DueHit]:
    """The HITs of a plan; ``batch`` is the name that the new batch will have."""
    due = [
        DueHit(
            _row(project_id, batch, page.number, 1, terms.assignments),
            page.items,
            terms.wording,
            terms.reward_cents,
        )
        for page in plan.fresh
    ]
    for one in plan.again:
        old = one.replaces
        row = _row(project_id, old.batch, old.number, one.attempt, one.assignments)
        due.append(DueHit(row, one.page.items, wordings[old.batch_id], batches[old.batch_id].reward_cents))
    for hit in plan.leftover:
        items = plan.leftover_pages[hit.id]
        due.append(DueHit(hit, items, wordings[hit.batch_id], batches[hit.batch_id].reward_cents))
    return due


def rehearse(
    plan: Plan,
    due: Sequence[DueHit],
    pages: Pages,
    project_id: str,
    progress: Progress,
    keep: Keep | None = None,
) -> int:
    """Render and check every HIT and each of its requests; returns the largest question's size in bytes.

    Raises:
        TemplateError: a page is malformed or too large.
        PackingError: a page breaks the packing rules.
        CrowdError: a request is not as the API wants it.
        DatasetError: a page's picture cannot be shown.
    """
    check_batch(plan.fresh)
    pages.prepare([one.items for one in due])
    largest = 0
    with RehearsalClient(Rehearsal(keep)) as client, progress("check", len(due)) as advance:
        guard = exclusion_qualification(client, project_id)
        types: dict[tuple[str, int], str] = {}
        for one in due:
            try:
                check_page(one.items, one.hit.key)
                question = pages.question(one.items, one.wording)
            except (TemplateError, PackingError) as error:
                raise type(error)(f"HIT {one.hit.key}: {error}") from error
            kind = (one.wording.template.name, one.reward_cents)
            if kind not in types:
                types[kind] = create_hit_type(client, one.wording.template, one.reward_cents, guard)
            create_hit(client, project_id, one.hit, types[kind], question)
            largest = max(largest, len(question.encode()))
            advance(1)
    return largest


class Rehearsal(Transport):
    """Takes calls, holds them against botocore's model and the API's limits, and answers as an empty server would."""

    def __init__(self, keep: Keep | None = None) -> None:
        self.url = "nowhere"
        self._keep = keep
        self._model = botocore.session.Session().get_service_model("mturk")
        self._names = {xform_name(name): name for name in self._model.operation_names}
        self._made = 0

    def close(self) -> None:
        """There is nothing to close."""

    def call(
        self,
        operation: str,
        read: Callable[[Mapping[str, Any]], T],
        *,
        repeatable: bool = True,
        **parameters: Any,
    ) -> T:
        """Check a call and make up its reply.

        Raises:
            CrowdError: botocore would not send it, or the API would refuse it.
        """
        name = self._names[operation]
        report = ParamValidator().validate(parameters, self._model.operation_model(name).input_shape)
        if report.has_errors():
            raise CrowdError(f"{name} cannot be sent: {' '.join(report.generate_report().split())}")
        check_request(name, parameters)
        if name == "ListQualificationTypes":
            return read({"QualificationTypes": []})
        self._made += 1
        if self._keep is not None:
            self._keep(name, parameters)
        made = f"{name.removeprefix('Create').upper()}{self._made}"
        replies: dict[str, Mapping[str, Any]] = {
            "CreateQualificationType": {"QualificationType": {"QualificationTypeId": made}},
            "CreateHITType": {"HITTypeId": made},
            "CreateHITWithHITType": {"HIT": {"HITId": made}},
        }
        return read(replies[name])


class RehearsalClient(MTurkClient):
    """The client with a transport that sends nothing."""

    def __init__(self, transport: Rehearsal) -> None:
        self.url = transport.url
        self._transport = transport


def _row(project_id: str, batch: str, number: int, attempt: int, assignments: int) -> HitRow:
    key = token(project_id, batch, number, attempt)
    return HitRow(0, 0, batch, number, attempt, assignments, HitState.PLANNED, None, key)
