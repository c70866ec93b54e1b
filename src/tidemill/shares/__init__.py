"""Share groups (KIP-932): many consumers on one partition, each record acquired and acknowledged on its own."""
