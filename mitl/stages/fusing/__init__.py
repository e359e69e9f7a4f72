"""Scoring the ranked pairs of a project by fusion."""
