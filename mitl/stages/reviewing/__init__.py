"""People's decisions, with the evidence about work and workers, at the terminal and at the desk.

No decision without a person.
"""
