"""What people answered: gold checks, workers' records, which answers count, and the answer of a pair.

No database, no files.
"""
