"""The broker: connects topics, partitions, coordination, groups, transactions and timelines."""
