"""What every test has."""

from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: neither a slow example nor slow drawing is a finding.
settings.register_profile("tidemill", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("tidemill")
