"""The HTTP server: the console, its JSON API, SQL, metrics, health."""
