"""From encoded items to similarities."""
