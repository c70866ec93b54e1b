"""The JSON API under /api/v1: one module of handlers for each noun. The console shows the same values."""
