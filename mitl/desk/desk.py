"""What every page of the desk needs: the project, the environment, its access, its templates."""

from __future__ import annotations

import datetime as dt
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from sqlalchemy.orm import Session
from starlette.responses import HTMLResponse

from mitl.db.session import open_database
from mitl.db.store import desk as desk_store
from mitl.desk import words
from mitl.desk.access import Access
from mitl.desk.carrier import Carrier
from mitl.records import Decision, Environment, Label
from mitl.settings import Settings
from mitl.stages.reviewing.evidence import Crowd, crowd
from mitl.stages.reviewing.habits import Habits, habits

PAGES = Path(__file__).parent / "pages"

Clock = Callable[[], dt.datetime]


def utc_now() -> dt.datetime:
    """The time."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around every page."""

    version: str
    """Changes when the database would say something else."""
    answers: str
    """Changes when an answer came."""
    queued: int
    unsent: int
    """Decisions that the server has not heard of."""
    working: bool
    """Whether they are being carried there now."""
    problem: str
    """Why the last try to tell the server failed."""
    news: str

    @property
    def mark(self) -> str:
        """Changes when any page would say something else."""
        return f"{self.version}-{self.unsent}-{self.working:d}-{bool(self.problem):d}"


@dataclass(slots=True)
class _Kept:
    """What is dear to gather, with the version of what it was gathered from."""

    answers: str = ""
    habits: Habits | None = None
    version: str = ""
    crowd: Crowd | None = None


@dataclass(frozen=True, slots=True)
class Desk:
    """One environment of one project, looked at."""

    settings: Settings
    environment: Environment
    access: Access
    carrier: Carrier
    clock: Clock = utc_now
    templates: jinja2.Environment = field(default_factory=lambda: _templates())
    _kept: _Kept = field(default_factory=_Kept, repr=False)
    _gathering: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """The pipeline's database, to be read."""
        with open_database(self.settings.db_url, read_only=True) as session:
            yield session

    def frame(self, session: Session) -> Frame:
        """What stands around the page now."""
        pulse = desk_store.pulse(session, self.environment)
        unsent = desk_store.unsent(session, self.environment)
        standing = self.carrier.standing
        return Frame(
            version=hashlib.sha256(repr(pulse).encode()).hexdigest()[:16],
            answers=f"{pulse.newest}-{pulse.latest_answer}",
            queued=pulse.count(Decision.QUEUED),
            unsent=unsent,
            working=standing.working,
            problem=standing.problem,
            news=standing.news,
        )

    def crowd(self, session: Session, frame: Frame) -> Crowd:
        """All workers with their evidence, as of this frame."""
        kept, rule = self._kept, self.settings.gold_rule
        with self._gathering:  # two pages at once would gather it twice
            if kept.habits is None or kept.answers != frame.answers:
                kept.answers, kept.habits = frame.answers, habits(session, self.environment, rule)
                kept.crowd = None
            if kept.crowd is None or kept.version != frame.version:
                kept.version, kept.crowd = frame.version, crowd(session, self.environment, kept.habits)
            return kept.crowd

    def page(self, name: str, frame: Frame | None, *, status: int = 200, **values: object) -> HTMLResponse:
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


def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "either",
        "reason",
        "money",
        "seconds",
        "span",
        "day",
        "when",
        "ago",
        "percent",
        "count",
    ):
        made.filters[name] = getattr(words, name)
    for name in (
        "LABELS",
        "LETTERS",
        "OUTCOMES",
        "OUTCOME_LETTERS",
        "ROLES",
        "DECISIONS",
        "SHORT_DECISIONS",
        "STANDINGS",
        "ENVIRONMENTS",
    ):
        made.globals[name] = getattr(words, name)
    made.globals["Label"] = Label
    return made
