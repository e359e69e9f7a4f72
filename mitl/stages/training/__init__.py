"""Annotators that learn from the answers so far, and the weights that they leave in the project."""
