"""Replication: followers fetch from leaders, replicas change roles, partitions move between brokers."""
