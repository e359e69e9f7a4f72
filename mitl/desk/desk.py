"""What every page of the desk needs: the project, the environment, its templates, and who may use it.

That is this machine's own browser, by the link that was printed, and no foreign page.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse

from mitl.addresses import names_loopback
from mitl.core.clock import Clock, utc_now
from mitl.crowd.context import Context
from mitl.db.session import open_database
from mitl.db.store import desk as desk_store
from mitl.db.store.desk import SubmissionGroup
from mitl.desk import words
from mitl.desk.decision_sender import DecisionSender, SendingState
from mitl.errors import CrowdError, MitlError, OutageError, StoreError, UsageError
from mitl.records import Decision, Environment, Label, several
from mitl.resources import page_templates
from mitl.settings import Settings
from mitl.stages.reviewing.evidence import CrowdConduct, Habits, crowd, habits

_HOST = re.compile(r"(?:\[([0-9a-f:]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets of one run of the desk; they end with it."""

    name: str
    """Part of the cookie's name, since cookies are shared by all ports of a host."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Stands in the printed link and opens a session."""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Value of the cookie."""
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Stands in every form."""

    @property
    def cookie(self) -> str:
        """Name of the session's cookie."""
        return f"mitl_desk_{self.name}"

    def opens(self, token: str) -> bool:
        """Whether this is the link's token."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def knows(self, connection: HTTPConnection) -> bool:
        """Whether the browser has the session's cookie."""
        return hmac.compare_digest(connection.cookies.get(self.cookie, "").encode(), self.session.encode())

    def allows(self, connection: HTTPConnection, form_token: str) -> bool:
        """Whether a form comes from a page of this desk."""
        claimed = connection.headers.get("origin")
        if claimed is None:
            is_own = connection.headers.get("sec-fetch-site") == "same-origin"
        else:
            is_own = claimed.partition("://")[2] == connection.headers.get("host")
        return is_own and hmac.compare_digest(form_token.encode(), self.form.encode())


def is_own_host(host: str) -> bool:
    """Whether a Host header names this machine's loopback, by which alone the desk may be asked for.

    The port may differ, because people reach another machine's desk through an SSH tunnel.
    """
    parts = _HOST.fullmatch(host.lower())
    return parts is not None and names_loopback(parts[1] or parts[2])


def require_loopback(
    host: str, why: str = "the desk shows who worked and spends money", port: int = 8766
) -> None:
    """UsageError unless the address is one that only this machine can reach."""
    if not names_loopback(host.strip("[]")):
        raise UsageError(
            f"{why}, so it listens on this machine alone, not on {host!r}; leave out --host, and reach it from "
            f"elsewhere by: ssh -L {port}:127.0.0.1:{port} THIS-MACHINE"
        )


PAGES = Path(__file__).parent / "pages"


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What stands around every page."""

    version: str
    """Changes when the database would say something else."""
    answers: str
    """Changes when an answer came."""
    queued: int
    unsent: int
    """Decisions that the server has not heard of."""
    sending: SendingState
    """What becomes of them."""
    groups: Sequence[SubmissionGroup] = field(repr=False)

    @property
    def mark(self) -> str:
        """Changes when any page would say something else."""
        return f"{self.version}-{self.unsent}-{self.sending.working:d}-{bool(self.sending.problem):d}"


@dataclass(slots=True)
class _Kept:
    """What is dear to gather, with the version of what it was gathered from."""

    answers: str = ""
    habits: Habits | None = None
    version: str = ""
    crowd: CrowdConduct | None = None


@dataclass(frozen=True, slots=True)
class Desk:
    """One environment of one project, looked at."""

    settings: Settings
    environment: Environment
    access: Access
    sender: DecisionSender
    clock: Clock = utc_now
    templates: jinja2.Environment = field(default_factory=lambda: _templates())
    _kept: _Kept = field(default_factory=_Kept, repr=False)
    _gathering: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def reading(self) -> Iterator[Context]:
        """The pipeline's database, to be read."""
        with open_database(self.settings.db_url, read_only=True) as session:
            yield Context(session, self.settings, self.environment, now=self.clock)

    def frame(self, context: Context) -> PageFrame:
        """What stands around the page now."""
        groups = desk_store.submission_groups(context.session, self.environment)
        pulse = desk_store.pulse(context.session, self.environment, groups)
        unsent = desk_store.unsent(context.session, self.environment, groups)
        return PageFrame(
            version=hashlib.sha256(repr(pulse).encode()).hexdigest()[:16],
            answers=f"{pulse.newest}-{pulse.latest_answer}",
            queued=pulse.count(Decision.QUEUED),
            unsent=unsent,
            sending=self.sender.standing,
            groups=groups,
        )

    def crowd(self, context: Context, frame: PageFrame) -> CrowdConduct:
        """All workers with their evidence, as of this frame."""
        kept, rule, session = self._kept, self.settings.gold_rule, context.session
        with self._gathering:  # two pages at once would gather it twice
            if kept.habits is None or kept.answers != frame.answers:
                kept.answers, kept.habits = frame.answers, habits(session, self.environment, rule)
                kept.crowd = None
            if kept.crowd is None or kept.version != frame.version:
                kept.version, kept.crowd = frame.version, crowd(session, self.environment, kept.habits)
            return kept.crowd

    def page(
        self, name: str, frame: PageFrame | None, *, status: int = 200, **values: object
    ) -> HTMLResponse:
        """A page from its template; None leaves out what only a session may see."""
        text = self.templates.get_template(name).render(
            project=self.settings.project.name,
            environment=self.environment,
            form_token=self.access.form,
            now=self.clock(),
            floor_s=self.settings.min_seconds_a_pair,
            frame=frame,
            **values,
        )
        return HTMLResponse(text, status)

    def notice(self, status: int, title: str, text: str, *, known: bool = True) -> HTMLResponse:
        """A short page that says what happened."""
        return self.page("notice.html.j2", None, status=status, title=title, text=text, known=known)

    def failed(self, error: MitlError) -> HTMLResponse:
        """The page that says what a person can mend."""
        text = str(error)
        if isinstance(error, OutageError):
            text = text.replace("run the command again", "load this page again")
        if text.partition(" ")[0].isalpha():  # the name of a file stays as it is
            text = f"{text[:1].upper()}{text[1:]}"
        return self.notice(status_of(error), "That did not work", f"{text}.")


def status_of(error: MitlError) -> int:
    """The status of the page that tells this error."""
    kinds: tuple[tuple[type[MitlError], int], ...] = (
        (UsageError, 422),
        (OutageError, 503),
        (StoreError, 409),
        (CrowdError, 502),
    )
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)


def _templates() -> jinja2.Environment:
    environment = page_templates(PAGES, PAGES / "shared")
    for name in ("fate", "either", "reason", "money", "seconds", "day", "when", "ago", "part", "percent"):
        environment.filters[name] = getattr(words, name)
    environment.filters["count"] = several
    for name in (
        *("LABELS", "LETTERS", "OUTCOMES", "OUTCOME_LETTERS", "ROLES", "DECISIONS"),
        *("STANDINGS", "ENVIRONMENTS", "FINDINGS", "RATER_MARKS"),
    ):
        environment.globals[name] = getattr(words, name)
    environment.globals["Label"] = Label
    return environment
