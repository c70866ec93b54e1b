"""Decisions about the wall clock. All times are arguments."""
