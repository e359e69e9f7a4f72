"""Graded similarity from 0 to 5: two texts, two images, or an image and a text. No call to the server."""
