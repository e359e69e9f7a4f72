"""Bringing in work that was done before, from files."""
