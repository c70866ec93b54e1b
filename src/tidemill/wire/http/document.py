"""The base of all JSON documents, and the parts that many of them share."""

from typing import Annotated

import msgspec

PAGE_ROWS = 50
PAGE_ROWS_MAX = 500
SEARCH_CHARS_MAX = 249
PAGE_MAX = 1_000_000


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document that the server writes."""


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document, or the query of a URL, that a client writes. A field that the server does not know is an error."""


class PageQuery(Input, frozen=True, kw_only=True):
    """The query of a list with pages. Subclasses add `sort` with the names of their columns."""

    search: Annotated[str, msgspec.Meta(max_length=SEARCH_CHARS_MAX, description="Part of a name.")] = ""
    descending: bool = False
    page: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX, description="The page, from 1 on.")] = 1
    rows: Annotated[int, msgspec.Meta(ge=1, le=PAGE_ROWS_MAX, description="Rows of a page.")] = PAGE_ROWS


class Problem(Document, frozen=True, kw_only=True, omit_defaults=True):
    """An error: what failed, why, and what to do next."""

    error: str
    field: str | None = None
    """The part of the body that it is about, where the server knows it: for example `config.retention.ms`."""
