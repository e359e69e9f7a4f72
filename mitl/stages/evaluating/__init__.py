"""Scoring models on sets of positives: files or annotators in, figures with intervals out.

No metric is defined here.
"""
