"""Whether the wall clock may be trusted: `core/` decides, `watch.py` reads the clocks, `record.py` keeps them."""
