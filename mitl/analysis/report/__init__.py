"""The HTML report: what it shows as records, its plots and its pages.

No database, no files but pictures and the page.
"""
