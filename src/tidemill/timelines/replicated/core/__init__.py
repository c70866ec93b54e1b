"""Pure rules of replicated timelines."""
