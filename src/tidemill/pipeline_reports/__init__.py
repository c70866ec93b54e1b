"""What pipelines report about themselves: the last report of each, kept in the internal topic `__pipelines`."""
