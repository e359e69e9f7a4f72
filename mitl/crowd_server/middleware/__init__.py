"""What stands before the pages: who is let in, how much, how fast, and what is logged and counted.

No page's content.
"""
