"""Weights files as their authors wrote them: read without running them, compared with networks; no computation."""
