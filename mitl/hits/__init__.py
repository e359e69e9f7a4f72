"""Pairs to pages: packing, rendering and pricing. No database, no call to the server."""
