"""Alembic environment of the pipeline database; `mitl db` hands in a connection, `alembic` by hand a URL."""

from alembic import context

from mitl.db.migrate import run_environment
from mitl.db.models import Base

run_environment(context, Base.metadata)
