"""Analysing a project: tables for reviewers. No SQL, no HTML."""
