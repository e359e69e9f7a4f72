"""Samples of a pool of pairs with known chances, and the bounds that their answers prove: pure functions."""
