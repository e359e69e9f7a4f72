"""The keys of ``counts`` of the crowd server and the databases, and what they mean."""

from __future__ import annotations

_ENVIRONMENT = {"environment": "sandbox or live"}

COUNTS: dict[str, dict[str, str]] = {
    "serve": {
        "url": "where the server listens",
        "operator_url": "the operator page with its token",
        "server_id": "the server's id",
    },
    "crowd invite": {
        **_ENVIRONMENT,
        "invitations": "links made; with `--list`, all invitations",
        "links": "the links; shown only now",
        "revoked": "with `--revoke`, the number of the invitation",
    },
    "crowd invitations": {"invitations": "all invitations"},
    "crowd revoke": {"revoked": "number of the invitation"},
    "crowd panel add": {
        **_ENVIRONMENT,
        "slug": "the panel's name, the last part of its link",
        "link": "the study link, with the panel's placeholders",
    },
    "crowd panel list": {
        "panels": "all panels",
        "links": "by panel: the study link",
        "visits": "by panel: visits by state",
    },
    "crowd panel visits": {"panel": "the panel", "visits": "its visits"},
    "crowd panel close": {"closed": "the panel"},
    "crowd panel forget": {"forgotten": "workers whose panel ids were deleted"},
    "crowd study": {**_ENVIRONMENT, "version": "version of the text; 0 where there is none"},
    "crowd keys": {
        "sandbox": "access key of the sandbox",
        "live": "access key of live",
        "access_key": "with `--export`, that of the environment written",
    },
    "crowd operator": {"operator_url": "the operator page with its token"},
    "crowd budget": {"sandbox": "cents left on the sandbox", "live": "cents left on live"},
    "crowd payments": {
        **_ENVIRONMENT,
        "workers": "workers with approved work",
        "owed_cents": "what all of them are owed",
    },
    "completion": {"shell": "the shell", "script": "the lines that it is to read"},
    "db upgrade": {
        "upgraded": "databases moved to a newer revision",
        "copies": "copies of SQLite files as they were before",
    },
    "db current": {"pipeline": "revision of mitl.db", "crowd": "revision of crowd.db"},
    "db backup": {
        "pipeline": "rows of mitl.db that the backup holds",
        "crowd": "rows of crowd.db that it holds",
        "bytes": "size of its tables' files",
    },
    "db restore": {
        "pipeline": "rows put into mitl.db",
        "crowd": "rows put into crowd.db",
        "copies": "copies of SQLite files as they were before (`--replace`)",
    },
    "db verify": {
        "databases": "databases that were looked at",
        "faults": "each fault: database, what, rows",
    },
}
