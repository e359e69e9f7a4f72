"""Preference studies: two rankings of one query side by side, posted, taken in, and scored."""
