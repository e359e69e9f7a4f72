"""Campaigns: what asks the crowd, whatever it asks; each kind of question is a folder of ``kinds``.

It prints nothing and decides about no answer.
"""
