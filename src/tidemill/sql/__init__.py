"""Read-only SQL over records, groups, lag and timers."""
