"""What every test has."""

import os

from hypothesis import HealthCheck, settings

from tidemill.app.logs import configure

# A busy machine is no reason to fail: neither a slow example nor slow drawing is a finding.
settings.register_profile("tidemill", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("tidemill")

# Tests start programs beside gRPC clients; see `tidemill.client.timeline`. It is read when gRPC is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

# Brokers and consumers inside of the tests' process leave logs alone when somebody has spoken already: warnings, to
# standard error, so that a test of what a command prints sees the command alone.
configure("warning", "auto")
