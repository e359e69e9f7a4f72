"""Making a project: loading a data set, its settings and databases."""
