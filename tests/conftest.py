"""What every test has."""

import os

from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: neither a slow example nor slow drawing is a finding.
settings.register_profile("tidemill", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("tidemill")

# Tests start programs beside gRPC clients; see `tidemill.client.timeline`. It is read when gRPC is first imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
