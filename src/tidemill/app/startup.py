"""A quick start: what is not needed for the ready line waits until after it.

Loading modules makes few cycles and many objects, which the collector would look through again and again: it is off
until the node is ready (`process` turns it on). structlog looks for rich as soon as it is imported, and rich brings
half of its library and a syntax highlighter along: while it is looked for, it is not there. `logs` shows tracebacks
with it all the same.
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
def garbage_left() -> Iterator[None]:
    """Collect nothing until the node is ready (or the block is left); for a process that does nothing else."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def import_structlog() -> None:
    """Load structlog without rich; does nothing where either is loaded already."""
    if RICH in sys.modules or "structlog" in sys.modules:
        return
    sys.modules[RICH] = cast("ModuleType", None)
    try:
        import_module("structlog")
    finally:
        del sys.modules[RICH]
