"""A real broker for your tests: `with Broker() as broker: ...`, or the pytest fixture `tidemill_broker`.

pytest loads this package in every session, so the names are loaded when they are first used.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.testing.broker import Broker
    from tidemill.testing.clock import VirtualClock

__all__ = ["Broker", "VirtualClock"]

_HOMES = {"Broker": "tidemill.testing.broker", "VirtualClock": "tidemill.testing.clock"}


if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(
                f"module 'tidemill.testing' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
            )
        return getattr(import_module(_HOMES[name]), name)
