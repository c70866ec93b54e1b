"""Records in the JSON API."""

from collections.abc import Sequence
from typing import Any

from tidemill.servers.http.api.api_context import ApiHandler
from tidemill.servers.http.api.broker_parts import PartKind

HANDLERS: dict[str, ApiHandler] = {}
PARTS: Sequence[PartKind[Any, Any]] = ()
