"""From annotators to candidate pairs: rankings, samples, estimates, checks of weights."""
