"""HTTP: front page, metrics, health."""
