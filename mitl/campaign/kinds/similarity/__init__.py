"""Graded similarity: people say from 0 to 5 how alike two texts, two images, or an image and a text are."""
