"""Clients of our own."""
