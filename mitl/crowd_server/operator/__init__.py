"""The operator's page: what is seen, what can be done, files of payments."""
