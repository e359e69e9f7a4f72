"""One function per step: read, call the pure core, write, commit. No click, no printing, no SQL."""
