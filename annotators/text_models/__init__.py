"""Models that compare texts: weighted words, latent semantic words, a trained sentence encoder."""
