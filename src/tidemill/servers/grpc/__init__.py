"""The gRPC server: BrokerService and TimelineService."""

import os

# See `client/__init__.py`: a broker inside a test process must not disturb programs that the test starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# The broker logs errors itself, in its own format.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
