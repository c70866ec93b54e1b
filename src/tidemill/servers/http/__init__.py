"""The HTTP server: front page, JSON API, SQL, metrics, health."""
