"""Dumps: a database's tables as Parquet files with a manifest, the same for SQLite and PostgreSQL."""
