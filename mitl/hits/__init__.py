"""Pairs to pages: packing, rendering and pricing."""
