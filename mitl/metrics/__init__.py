"""Retrieval metrics on plain arrays: no files, no database, no torch."""
