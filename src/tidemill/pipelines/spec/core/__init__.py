"""Decisions on a spec that need no I/O: its parts, their checks, and the order of its views."""
