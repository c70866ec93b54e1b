"""Decisions of writes to topics that need no I/O: options, columns, and which micro-batches are decided."""
