"""Shortens the start: everything that the ready line does not need is loaded after it.

Importing modules creates many objects and few reference cycles, so the garbage collector is off until the node is ready
(`process` turns it on). structlog imports rich if it finds it, and rich loads half of its library and a syntax
highlighter. rich is therefore hidden while structlog is imported. `logs` still uses rich to print tracebacks.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import cast

RICH = "rich"


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection until the node is ready or the block ends. For a process that does nothing else."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def import_structlog() -> None:
    """Import structlog without rich. Does nothing where either is already loaded."""
    if RICH in sys.modules or "structlog" in sys.modules:
        return
    sys.modules[RICH] = cast("ModuleType", None)
    try:
        import_module("structlog")
    finally:
        del sys.modules[RICH]
