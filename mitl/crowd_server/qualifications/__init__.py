"""Qualifications from the workers' side, and who may see and take what."""
