"""Texts that people write for items without partner, partners that they pick, and what a second worker says of both."""
