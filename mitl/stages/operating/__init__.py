"""Keeping a project's databases: revisions, backups, checks, and watching where it stands.

No answer is read or judged.
"""
