"""SQL over what flows: questions about records, groups, lag and timers, answered and never able to change anything."""
