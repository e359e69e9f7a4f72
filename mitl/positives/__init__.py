"""From judgements to positives to a release: merging, exclusions, and the files that others load.

No database; no answer is rewritten.
"""
