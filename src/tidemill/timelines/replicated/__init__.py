"""Timelines that survive the loss of a broker: a replicated journal, and an index of it on every replica."""
