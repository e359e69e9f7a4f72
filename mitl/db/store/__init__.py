"""The store: every ``select`` and ``insert`` of the pipeline. Records in, records out; the stages commit."""
