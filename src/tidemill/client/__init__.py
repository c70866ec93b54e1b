"""Clients of our own."""

import os

# gRPC's handlers around fork() can abort the child of a process that only wants to start another program. They are
# of use to those who go on using gRPC in a forked child, which an event loop cannot. Read when gRPC is imported, which
# whatever module of a client comes first may do: so it is said here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
