"""Reads topics: plans which offsets a query reads next, and reads them as rows."""
