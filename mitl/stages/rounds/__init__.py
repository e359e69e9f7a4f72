"""Rounds of the loop: opened, walked step by step, shown, closed, taken back."""
