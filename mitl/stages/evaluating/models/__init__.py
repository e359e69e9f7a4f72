"""Models that are evaluated: files of embeddings, similarities or rankings, read and put into the order of the sets."""
