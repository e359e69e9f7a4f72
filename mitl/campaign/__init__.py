"""Campaigns: what asks the crowd, whatever it asks; each kind of question is a folder of ``kinds``."""
