"""Decisions of the source that need no I/O: options, positions, offset ranges and pushed filters."""
