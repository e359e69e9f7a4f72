"""The explorer: pairs of a project or of a release, searched and filtered in the browser, on this machine only.

It reads and never writes, and it shows what people answered but never who.
"""
