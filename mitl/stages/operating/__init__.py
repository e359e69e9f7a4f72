"""Keeping a project's databases: revisions, backups, checks, and watching where it stands."""
