"""What a project looks like: one screen, one page. Nothing is written but the page and the scores beside it."""
