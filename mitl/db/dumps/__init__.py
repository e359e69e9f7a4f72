"""Dumps: a database's tables as Parquet files with a manifest, the same for SQLite and PostgreSQL.

No command and no message to a person.
"""
