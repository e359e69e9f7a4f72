"""The tables of ``crowd.db`` and all SQL on them: rows in, rows out, on the caller's transaction. It knows no HTTP."""
