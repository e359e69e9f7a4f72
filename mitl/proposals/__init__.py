"""Sampled queries and rankings to candidate pairs with provenance, and gold controls.

No database, and nobody is asked.
"""
