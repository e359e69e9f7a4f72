"""Machine annotators: what ranks items for queries, one file each."""
