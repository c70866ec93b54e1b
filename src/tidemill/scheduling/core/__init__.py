"""Decisions of scheduling without IO: which records of a batch wait, and how waiting records are stored."""
