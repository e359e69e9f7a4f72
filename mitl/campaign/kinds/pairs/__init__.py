"""Pairs of an image and a caption, each asked alone, with gold controls among them. No call to the server."""
