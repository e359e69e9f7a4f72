"""Preference studies: two rankings of one query side by side, asked, taken in, and scored. No call to the server."""
