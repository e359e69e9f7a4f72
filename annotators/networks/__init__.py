"""The parts of the networks, under the names of their official checkpoints; no files."""
