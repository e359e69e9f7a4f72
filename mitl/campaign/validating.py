"""Every request of a plan, made by the client's own code and sent nowhere: what is not right shows before it costs.

A dry run writes them down: every request as JSON, every page as HTML to look at, and the bill.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from xml.etree import ElementTree

from botocore import xform_name
from botocore.validate import ParamValidator

from mitl.campaign.kinds.protocol import Wording, kept_off
from mitl.campaign.pages import Pages
from mitl.campaign.posting import HitTypes, create_hit
from mitl.crowd.client import MTurkClient
from mitl.crowd.context import Context
from mitl.crowd.transport import Transport, service_model
from mitl.db.session import reading
from mitl.db.store.hits import StoredHit
from mitl.errors import CrowdError, PackingError, TemplateError, UsageError
from mitl.hits.rendering import HTML_QUESTION_NAMESPACE
from mitl.hits.validation import check_request

BILL, REQUESTS, PAGES = "bill.txt", "requests", "pages"
_OURS = re.compile(r"[0-9]{5}-[A-Za-z]+\.json|[^/]+\.html")
_SRC = re.compile(r'(?<=src=")([^"]*)(?=")')

T = TypeVar("T")
Keep = Callable[[str, Mapping[str, Any]], None]
"""Is given each request that would change something: the operation's name and its parameters."""


@dataclass(frozen=True, slots=True)
class DueHit:
    """A HIT of a plan as it would be posted."""

    hit: StoredHit
    items: Sequence[Any]
    wording: Wording
    reward_cents: int


def validate_requests(context: Context, pages: Pages, due: Sequence[DueHit], keep: Keep | None = None) -> int:
    """Render and check every HIT and each of its requests; returns the largest question's size in bytes.

    Raises:
        TemplateError: a page is malformed or too large.
        PackingError: a page breaks the packing rules.
        CrowdError: a request is not as the API wants it.
        DatasetError: a page's picture cannot be shown.
    """
    project_id = context.settings.project_id
    on_pages = [due_hit.items for due_hit in due]
    pages.prepare(on_pages)
    with reading(context.session):
        met = pages.kind.who_met(context.session, context.environment, on_pages)
    with (
        ValidatingClient(ValidatingTransport(keep)) as client,
        context.progress("check", len(due)) as advance,
    ):
        types = HitTypes(client, context.settings)
        for due_hit, who in zip(due, kept_off(met), strict=True):
            try:
                pages.kind.check_page(due_hit.items, due_hit.hit.key)
                pages.check(due_hit.items, due_hit.wording)
                # Put together only for whoever looks at requests: all of it was checked in its parts.
                question = "" if keep is None else pages.question(due_hit.items, due_hit.wording)
            except (TemplateError, PackingError) as error:
                raise type(error)(f"HIT {due_hit.hit.key}: {error}") from error
            hit_type = types.of(due_hit.wording.template, due_hit.reward_cents, who)
            create_hit(client, project_id, due_hit.hit, hit_type, question)
            advance(1)
    return pages.largest


class ValidatingTransport(Transport):
    """Takes calls, holds them against botocore's model and the API's limits, and answers as an empty server would."""

    def __init__(self, keep: Keep | None = None) -> None:
        self.url = "nowhere"
        self._keep = keep
        self._model = service_model()
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
            "AssociateQualificationWithWorker": {},
            "CreateQualificationType": {"QualificationType": {"QualificationTypeId": made}},
            "CreateHITType": {"HITTypeId": made},
            "CreateHITWithHITType": {"HIT": {"HITId": made}},
        }
        return read(replies[name])


class ValidatingClient(MTurkClient):
    """The client with a transport that sends nothing."""

    def __init__(self, transport: ValidatingTransport) -> None:
        self.url = transport.url
        self._transport = transport


class DryRunFolder:
    """Where a dry run is written; an earlier one there is replaced, anything else is left alone."""

    def __init__(self, path: Path, bill: Sequence[str]) -> None:
        """Make the folder ready, with the bill as it was printed, by which it is known even where the run breaks off.

        Raises:
            UsageError: it holds something else than an earlier dry run.
        """
        self.path = path
        self.n_requests = 0
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is not a folder; name another one with --out")
        if path.is_dir() and any(path.iterdir()) and not (path / BILL).is_file():
            raise UsageError(f"{path} holds something else than a dry run; name an empty folder with --out")
        path.mkdir(parents=True, exist_ok=True)
        (path / BILL).write_text("\n".join(bill) + "\n", encoding="utf-8")
        for name in (REQUESTS, PAGES):
            (path / name).mkdir(exist_ok=True)
            for file in (path / name).iterdir():
                if _OURS.fullmatch(file.name):
                    file.unlink()

    def keep(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """Write one request: its parameters as boto3 takes them, numbered in the order of sending."""
        self.n_requests += 1
        file = self.path / REQUESTS / f"{self.n_requests:05d}-{operation}.json"
        text = json.dumps(parameters, ensure_ascii=False, indent=1)
        file.write_text(text + "\n", encoding="utf-8")

    def write_pages(self, due: Sequence[DueHit], pages: Pages) -> None:
        """Write each HIT's page, its pictures taken from where they lie."""
        folder = self.path / PAGES
        sources = pages.sources
        near = {
            escape(sources[name]): quote(os.path.relpath(file, folder))
            for name, file in pages.files().items()
        }
        for due_hit in due:
            root = ElementTree.fromstring(pages.question(due_hit.items, due_hit.wording))  # noqa: S314 - we made it
            html = root.findtext(f"{{{HTML_QUESTION_NAMESPACE}}}HTMLContent") or ""
            shown = _SRC.sub(lambda src: near.get(src[1], src[1]), html)
            name = due_hit.hit.key.replace(":", "-")
            (folder / f"{name}.html").write_text(shown, encoding="utf-8")
