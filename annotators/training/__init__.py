"""Annotators that learn here: losses, small trainable networks, and what turns an annotator into something trained."""
