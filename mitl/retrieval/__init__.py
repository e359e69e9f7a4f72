"""Similarity blocks to exact rankings with bounded memory, and rankings on disk."""
