"""The operator's pages: what is seen, what can be done, files of payments, `/metrics`.

No SQL and no worker's page.
"""
