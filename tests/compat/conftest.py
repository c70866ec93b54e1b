"""What the tests of clients share: where the broker keeps its streams."""

import pytest
from tests.compat.storage import FILES, Storage


@pytest.fixture(scope="module")
def storage() -> Storage:
    """Segment files; a file of tests that run on tables has a fixture of its own."""
    return FILES
