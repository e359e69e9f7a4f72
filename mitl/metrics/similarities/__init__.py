"""Metrics straight from embeddings or similarities, without full rankings."""
