"""What the networks are given: pixels, words and region features, from files and texts; no network."""
