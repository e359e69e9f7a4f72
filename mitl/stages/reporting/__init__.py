"""What a project looks like: one screen, one page."""
