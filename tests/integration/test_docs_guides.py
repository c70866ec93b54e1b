"""The front page, the start pages and the guides work one after the other on one broker, in the order of the site."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.doc_pages import (
    CLUSTER_PAGES,
    ROOT,
    SECURITY_PAGES,
    TABLE_PAGES,
    followed_pages,
    names,
    without_spark,
)
from tests.support.doc_reader import follow_page

from tidemill.testing import Broker

PAGES = [page for page in followed_pages() if page in without_spark()]
CREATED = re.compile(r"^\$ tidemill (topic|timeline) create ([\w.-]+)", re.MULTILINE)
OTHER_BROKERS = CLUSTER_PAGES | TABLE_PAGES | SECURITY_PAGES
"""Pages whose brokers are started in another way, so that their names cannot collide."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A process, because chDB opens one folder in the life of a process."""
    with Broker(process=True) as running:
        yield running


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_a_page_does_what_it_says(page: Path, broker: Broker, tmp_path: Path) -> None:
    follow_page(page, tmp_path, broker)


def test_pages_use_distinct_names() -> None:
    here = [page for page in followed_pages() if str(page.relative_to(ROOT)) not in OTHER_BROKERS]
    created = Counter(name for page in here for name in set(CREATED.findall(page.read_text(encoding="utf-8"))))
    assert [name for name, pages in created.items() if pages > 1] == []
