"""Keeping a project's databases: revisions, backups, checks.

No answer is read or judged.
"""
