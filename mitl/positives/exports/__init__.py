"""Releases in the files that other tools evaluate with, as bytes."""
