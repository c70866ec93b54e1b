"""Timelines in PostgreSQL, shared by many brokers."""

from tidemill.timelines.postgres.store import PostgresStore, open_store

__all__ = ["PostgresStore", "open_store"]
