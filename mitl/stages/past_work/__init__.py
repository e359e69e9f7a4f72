"""Bringing in work that was done before, from files. Nothing is posted or paid."""
