"""The composition root: settings -> adapters -> broker -> servers. No other package knows the chosen adapters."""
