"""The requester API: one file per group of operations, each a function of a ``Call``."""
