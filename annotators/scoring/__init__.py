"""From encoded items to similarities; no files."""
