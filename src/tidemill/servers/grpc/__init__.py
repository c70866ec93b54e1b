"""BrokerService and TimelineService."""

import os

# See `client/__init__.py`: a broker inside a test process must not get in the way of programs that the test starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# What goes wrong is said by the broker, in one line of its own form.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
