"""The parallel consumer: hundreds of workers on one partition, commits that never skip a record."""
