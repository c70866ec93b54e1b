"""Decisions on tables that need no I/O: addresses, column types and statements."""
