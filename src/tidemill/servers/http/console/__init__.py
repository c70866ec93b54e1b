"""The console: pages over the values of the JSON API, one module for each noun, with templates and static files."""
