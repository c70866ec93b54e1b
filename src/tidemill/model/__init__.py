"""The shared vocabulary of all packages: ids, topics, settings and errors. Pure."""
