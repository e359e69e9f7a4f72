"""All SQL of the crowd server: rows in, rows out, on the caller's transaction."""
