"""Supervises the broker's background tasks: restart with backoff, health and metrics."""
