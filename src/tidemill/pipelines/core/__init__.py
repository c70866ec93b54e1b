"""Decisions of a pipeline that need no I/O: options, positions, offset ranges, and which batches are written."""
