"""The review desk: a person looks at workers and their work in the browser, on this machine only.

No second way to decide: it calls what `mitl review` calls.
"""
