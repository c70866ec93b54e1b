"""Tidemill's own clients."""

import os

# gRPC's fork() handlers can abort the child of a process that only wants to start another program. They help only
# programs that keep using gRPC in a forked child, which an event loop cannot do. gRPC reads this variable when it is
# imported, and any module of a client may import it first. So the variable is set here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
