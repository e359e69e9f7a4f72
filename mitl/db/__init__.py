"""The database: typed models, the store (all SQL), engine set-up and migrations. Nothing here commits."""
