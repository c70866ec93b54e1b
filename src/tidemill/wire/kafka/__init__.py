"""Kafka's messages: parsed by kio, written by writers of our own."""
