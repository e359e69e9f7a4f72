"""A session on the pipeline's database ends with its block."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import InvalidRequestError
from world_kit import make_world

from mitl.db.session import open_database
from mitl.db.store import items


def test_a_session_that_is_used_after_its_block_is_an_error(tmp_path):
    """It would open a connection that nobody closes, which may hold the lock that the next writer waits for."""
    settings = make_world(tmp_path)
    with open_database(settings.db_url) as session:
        items.dataset(session)

    with pytest.raises(InvalidRequestError, match="closed"):
        items.dataset(session)
