"""Which release is the latest."""

from __future__ import annotations

from mitl.db.session import open_database
from mitl.db.store.releases import ReleaseRow, built, salt, set_built
from mitl.records import Environment

SANDBOX, LIVE = Environment


def test_the_latest_release_is_the_one_that_was_built_last_in_its_environment(project_url: str) -> None:
    """Not the one that was named last, nor one of other people's answers; what was said of it comes back."""
    rows = [
        ReleaseRow("first", "a", {"strict": True}, ("--humans-only",), SANDBOX),
        ReleaseRow("second", "b", {"strict": False}, (), SANDBOX),
        ReleaseRow("of-people", "c", {}, (), LIVE),
    ]
    with open_database(project_url, create=True) as session:
        for row in (*rows, rows[0]):
            salt(session, row.name)
            set_built(session, row)
        session.commit()

        assert [row.name for row in built(session)] == ["second", "of-people", "first"]
        assert [row.name for row in built(session, LIVE)] == ["of-people"]
        latest = built(session, SANDBOX)[-1]
    assert (latest.name, dict(latest.rules), latest.humans_only) == ("first", {"strict": True}, True)
