"""The kinds of sinks of a pipeline: one class each, found by the registry. To add a kind, add one module here."""
