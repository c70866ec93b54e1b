"""Sorts rows and selects those of one page."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemill.wire.http.document import PageQuery

R = TypeVar("R")


def rows_of(rows: Sequence[R], query: PageQuery, key: Callable[[R], Any]) -> list[R]:
    """The rows of a page, sorted."""
    start = (query.page - 1) * query.rows
    return sorted(rows, key=key, reverse=query.descending)[start : start + query.rows]
