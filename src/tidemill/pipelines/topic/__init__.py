"""Writes rows to topics exactly once: tasks write transactions, and the driver commits them together."""
