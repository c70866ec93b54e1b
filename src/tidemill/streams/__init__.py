"""Streams: the log of a partition, from decision (core) to bytes on disk (segments)."""
