"""A pytest plugin for the run of one mutant: no shrinking, the same examples each time, bounded memory."""

import resource

import pytest
from hypothesis import HealthCheck, Phase, settings

PROFILE = "mutants"
MEMORY_BYTES_MAX = 12 * 2**30
"""Address space, most of which is never used; a mutant that allocates without end fails here."""

settings.register_profile(
    PROFILE,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


def pytest_configure(config: pytest.Config) -> None:
    """After `tests/conftest.py`, which loads the profile of the ordinary run."""
    settings.load_profile(PROFILE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
