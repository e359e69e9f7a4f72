"""Machine annotators, one file each: what ranks items for queries; no database, no project, no printing."""
