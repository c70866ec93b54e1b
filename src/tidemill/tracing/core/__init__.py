"""Decides which traces are followed, from bytes of clients. No clock, no randomness, no input or output."""
