"""Making a project: loading a data set, its settings and databases. Nothing that is there is overwritten."""
