"""A real broker for your tests."""
