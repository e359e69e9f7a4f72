"""Columns of numbers come whole and in order from either engine, in however many values PostgreSQL packs them."""

from functools import partial

import numpy as np
import pytest
from db_kit import cut_connections
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from mitl.db.models import Dataset
from mitl.db.session import open_database
from mitl.db.store import statements
from mitl.errors import OutageError

ROWS = """
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
    SELECT i, -7 * i, {third} FROM n ORDER BY i % 10, i DESC"""
IN_ORDER = sorted(range(1, 501), key=lambda i: (i % 10, -i))


def too_large(cursor, sent, source):
    """Raise what PostgreSQL says of a value beyond 1 GiB, for which it would need minutes."""
    cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'as for a large value' USING ERRCODE = '54000'; END $$")


@pytest.fixture(params=["at once", "in parts"])
def session(request, project_url, monkeypatch):
    """Of a database that gives all rows in one value, or refuses to and gives 64 in each, fewer in the last."""
    if request.param == "in parts":
        monkeypatch.setattr(statements, "_PART", 64)
        monkeypatch.setattr(statements, "_whole", too_large)
    with open_database(project_url, create=True) as opened:
        yield opened


def test_many_values_are_put_together_in_the_order_of_the_query(session):
    found = statements.number_columns(session, ROWS.format(third="i % 3 + 4294967296"), 3)

    assert found.dtype == np.int64
    assert found.tolist() == [
        IN_ORDER,
        [-7 * i for i in IN_ORDER],
        [i % 3 + 4294967296 for i in IN_ORDER],
    ]


def test_numbers_with_a_fraction_are_put_together_alike(session):
    found = statements.number_columns(session, ROWS.format(third="i / 8.0"), 3, np.float64)

    assert found[0].tolist() == IN_ORDER
    assert found[2].tolist() == [i / 8 for i in IN_ORDER]


def test_the_transaction_goes_on(session):
    session.execute(text("CREATE TABLE marker (id INTEGER)"))

    statements.number_columns(session, ROWS.format(third="0"), 3)

    assert session.scalar(text("SELECT count(*) FROM marker")) == 0


def test_no_rows_are_columns_of_no_length(session):
    assert statements.number_columns(session, "SELECT 1, 2 WHERE 1 = 0", 2).shape == (2, 0)


def test_what_the_driver_refuses_is_raised_as_by_sqlalchemy(session):
    """Which explains it in one line where a person should know."""
    with pytest.raises(DBAPIError, match="nothing"):
        statements.number_columns(session, "SELECT nothing", 1)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "work",
    [
        partial(statements.number_columns, statement="SELECT 1", n=1),
        partial(statements.plain_rows, statement="SELECT 1"),
        partial(statements.add_tuples, model=Dataset, names=("name",), rows=[("a",)]),
    ],
    ids=["packed", "plain", "copied"],
)
def test_a_server_that_goes_away_is_an_outage_where_the_driver_is_asked_itself(work, postgres_project_url):
    """As everywhere else: whoever waits for a server tries again."""
    stopped = pytest.raises(OutageError, match="its server was stopped or restarted: wait until it runs")
    with stopped, open_database(postgres_project_url, create=True) as opened:
        opened.connection()
        cut_connections(postgres_project_url)
        work(opened)
