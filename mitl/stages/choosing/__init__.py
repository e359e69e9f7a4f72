"""Which pairs a round asks."""
