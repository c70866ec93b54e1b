"""The command line: `tidemill` and its commands."""
