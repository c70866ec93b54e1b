"""Benchmarks: each prints the machine, its command and a ratio measured in one run beside a peer or a limit."""
