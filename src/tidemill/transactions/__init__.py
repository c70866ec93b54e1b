"""Transactions: atomic writes of a producer to many partitions."""
