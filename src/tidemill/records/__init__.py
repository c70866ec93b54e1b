"""Kafka record batches: headers, building, reading, validation and compression."""
