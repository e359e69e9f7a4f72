"""The pipeline's side of the crowd: the requester client, its journal, answers, scripted workers.

It does not say who is right.
"""
