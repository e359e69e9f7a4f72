"""Crisscrossed Captions: four retrieval tasks, correlations with human ratings, pseudo-labels."""
