"""The Kafka server: the listener, its connections, and one handler per API."""
