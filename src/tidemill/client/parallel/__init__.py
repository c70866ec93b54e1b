"""The parallel consumer: many workers on one partition, and commits that never skip a record."""
