"""Kafka's messages: kio has the classes, this package has the readers and writers."""
