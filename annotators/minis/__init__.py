"""The five networks at small sizes, trained on generated scenes; the same classes and loading code as full-size."""
