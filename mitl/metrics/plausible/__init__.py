"""Plausible matches by the objects that an image holds, and PMRP."""
