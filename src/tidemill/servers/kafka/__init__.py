"""Kafka's protocol."""
