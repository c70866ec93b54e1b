"""Decisions of a lake that need no I/O: its contents, its columns, and the position of a replay."""
