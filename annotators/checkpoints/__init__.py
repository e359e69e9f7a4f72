"""Weights files as their authors wrote them: read without running them, held against the networks."""
