"""mitl: machine-in-the-loop repair of image-caption retrieval datasets."""
