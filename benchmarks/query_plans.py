"""The plans of the hot queries: every statement that `status`, the review list, the desk and judging send.

PostgreSQL's driver is asked for whole columns without SQLAlchemy, so those statements are explained on SQLite alone.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from database_rows import AT
from sqlalchemy import Engine, event, text

from mitl.crowd.context import Context
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import desk
from mitl.desk.overview_page import overview
from mitl.records import Environment
from mitl.settings import load
from mitl.stages.harvesting.judging import judge
from mitl.stages.reporting.status import status
from mitl.stages.reviewing import review
from mitl.stages.reviewing.evidence import crowd, habits

SANDBOX = Environment.SANDBOX


def print_plans(url: str) -> None:
    """Run the reads, note their statements, and explain each once."""
    settings = load(db=url, environ={})
    seen: dict[str, Any] = {}

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT"):
            seen.setdefault(statement, parameters)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        status(settings, SANDBOX)
        review.queue(settings, SANDBOX)
        with open_database(url, read_only=True) as session:
            groups = desk.submission_groups(session, SANDBOX)
            desk.pulse(session, SANDBOX, groups)
            overview(Context(session, settings, SANDBOX, now=lambda: AT + dt.timedelta(hours=1)), groups)
            crowd(session, SANDBOX, habits(session, SANDBOX, settings.gold_rule))
        with open_database(url) as session:
            judge(session, SANDBOX, settings.gold_rule)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    _explain(url, seen)


def _explain(url: str, statements: dict[str, Any]) -> None:
    engine = make_engine(url)
    with engine.execution_options(mitl_write=False).connect() as connection:
        for statement, parameters in statements.items():
            if "alembic" in statement or "pg_" in statement or "sqlite_" in statement:
                continue
            began = dt.datetime.now()
            connection.exec_driver_sql(statement, parameters).all()
            taken = (dt.datetime.now() - began).total_seconds()
            print(f"\n{taken * 1000:8.1f} ms  {' '.join(statement.split())}")
            how = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
            for row in connection.exec_driver_sql(how + statement, parameters):
                print(f"            {row[-1]}")
        connection.execute(text("SELECT 1"))
    engine.dispose()
