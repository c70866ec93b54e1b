"""Timelines in one SQLite file: the embedded default."""

from tidemill.timelines.sqlite.store import SqliteStore, open_store

__all__ = ["SqliteStore", "open_store"]
