"""Alembic environment of the crowd database; `mitl db` hands in an engine, `alembic` by hand a URL."""

from alembic import context

from mitl.crowd_server.models import Base
from mitl.db.engine import make_engine

engine = context.config.attributes.get("engine")
if engine is None:
    url = context.config.get_main_option("sqlalchemy.url") or context.get_x_argument(as_dictionary=True).get(
        "url"
    )
    if not url:
        raise SystemExit("name the database: alembic -x url=sqlite:///mitl.db ...")
    engine = make_engine(url)

with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()
