"""What the pipeline and the crowd server say to each other beside the API: answers as XML, and the marks of pages.

Neither side's rows or decisions.
"""
