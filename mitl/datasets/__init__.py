"""Readers that bring a data set into one form, ``mitl.records.RetrievalSet``, and the generated world.

Each module reads one public format. A reader gives images and captions in tie order (integer ids by value,
strings by code point) and raises DatasetError with one line for anything a user can mend.
"""
