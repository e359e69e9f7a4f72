"""Alembic environment of the crowd database; `mitl db` hands in a connection, `alembic` by hand a URL."""

from alembic import context

from mitl.crowd_server.store.models import CrowdBase
from mitl.db.migrate import run_environment

run_environment(context, CrowdBase.metadata)
