"""Benchmarks: each prints the machine, its command and a ratio to a peer or a limit in the same run."""
