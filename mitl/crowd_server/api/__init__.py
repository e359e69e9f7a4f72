"""The requester API: one file per noun, each operation a function of an ``ApiCall``. It shows no page."""
