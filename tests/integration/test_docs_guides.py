"""The guides do what they say."""

from pathlib import Path

import pytest
from tests.integration.pages import names, without_spark
from tests.integration.reader import follow_page

GUIDES = [page for page in without_spark() if "guides" in page.parts]


@pytest.mark.parametrize("page", GUIDES, ids=names(GUIDES))
def test_a_guide_does_what_it_says(page: Path, tmp_path: Path) -> None:
    follow_page(page, tmp_path)
