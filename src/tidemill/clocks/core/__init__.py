"""Decisions about the wall clock, from times that come in as arguments."""
