"""The five networks at small sizes, trained on generated scenes by the full-size classes; nothing that ranks."""
