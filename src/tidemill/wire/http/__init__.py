"""The JSON documents of the HTTP API, as msgspec classes. Commands print the same shapes with `--json`."""
