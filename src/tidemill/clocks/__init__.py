"""Decides whether the wall clock is trusted: `core/` decides, `watch.py` reads the clocks, `record.py` stores them."""
