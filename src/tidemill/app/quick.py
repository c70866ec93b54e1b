"""A quick start: what structlog would load for pretty tracebacks is loaded when there is one to show.

structlog looks for rich as soon as it is imported, and rich brings half of its library and a syntax highlighter along:
a tenth of the way to the ready line. While it is looked for, it is not there. `logs` shows tracebacks with it all the
same.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import cast

RICH = "rich"


def import_structlog() -> None:
    """Load structlog without rich; does nothing where either is loaded already."""
    if RICH in sys.modules or "structlog" in sys.modules:
        return
    sys.modules[RICH] = cast("ModuleType", None)
    try:
        import_module("structlog")
    finally:
        del sys.modules[RICH]
