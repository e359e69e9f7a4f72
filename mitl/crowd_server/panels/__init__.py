"""Panels and studies: how participants arrive and go back, and what the operator sets. No page lives here."""
