"""Participants of panels: how they arrive, what they do in a visit, how they leave."""
