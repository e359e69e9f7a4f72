"""Calls that begin at the same moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


def at_once(action, items):
    """What the action gives for each item, all started together."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(action, items))
