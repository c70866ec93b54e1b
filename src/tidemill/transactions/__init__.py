"""Transactions: producers that write to many partitions at once, or not at all."""
