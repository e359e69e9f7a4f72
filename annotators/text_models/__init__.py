"""Models that compare texts: weighted words, latent words, a trained sentence encoder; no images."""
