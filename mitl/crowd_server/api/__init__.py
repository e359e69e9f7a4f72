"""The requester API: one file per noun, each operation a function of a ``Call``. It shows no page."""
