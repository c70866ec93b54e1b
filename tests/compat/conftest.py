"""Shared setup of the client tests: where the broker stores its streams."""

import pytest
from tests.compat.storage import FILES, Storage


@pytest.fixture(scope="module")
def storage() -> Storage:
    """Segment files. Test files that run on tables override this fixture."""
    return FILES
