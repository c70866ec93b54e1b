"""Timelines: messages delivered at their due time, under a lease."""
