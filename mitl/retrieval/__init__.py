"""Similarity blocks to exact rankings with bounded memory, and rankings on disk.

It knows nothing of who made the similarities.
"""
