"""A real broker for tests: `with Broker() as broker: ...`, or the pytest fixture `tidemill_broker`.

pytest loads this package in every session, so each name is imported at its first use.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.testing.broker import Broker
    from tidemill.testing.clock import VirtualClock

__all__ = ["Broker", "VirtualClock"]

_MODULES = {"Broker": "tidemill.testing.broker", "VirtualClock": "tidemill.testing.clock"}


if not TYPE_CHECKING:  # type checkers use the imports above and must reject other names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(
                f"module 'tidemill.testing' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        return getattr(import_module(_MODULES[name]), name)
