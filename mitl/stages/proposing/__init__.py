"""From annotators to candidate pairs: rankings, samples, estimates, checks of weights.

Nobody is asked and nothing costs.
"""
