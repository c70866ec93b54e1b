"""Chooses the record kernels of this process: TIDEMILL_KERNELS=python or numba, or else the fastest installed.

The fastest kernels take a second to load, more than the reference needs for some ten thousand records. A process starts
with the reference and switches when it gets more work.
"""

import os
import sys
from collections.abc import Callable, Mapping

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.records.arrow import Kernels, load_kernels

VARIABLE = "TIDEMILL_KERNELS"
RECORDS_BY_REFERENCE = 20_000
"""The number of records that the reference handles in about the load time of the fastest kernels."""


class KernelChoice:
    """Chooses kernels by the number of records so far."""

    def __init__(self, loaded: Callable[[], bool] = lambda: "numba" in sys.modules) -> None:
        self._loaded = loaded
        self._records = 0

    def of(self, records: int, environ: Mapping[str, str] = os.environ) -> Kernels:
        """The kernels for this many more records."""
        self._records += records
        if VARIABLE in environ or self._loaded() or self._records > RECORDS_BY_REFERENCE:
            return chosen_kernels(environ)
        return load_kernels("python")


HERE = KernelChoice()
"""The choice of this process."""


def chosen_kernels(environ: Mapping[str, str] = os.environ) -> Kernels:
    """The kernels that the environment selects."""
    try:
        return load_kernels(environ.get(VARIABLE) or None)
    except ValueError as error:
        raise InvalidClientOption(f"{VARIABLE}: {error}") from None
    except ImportError as error:
        raise InvalidClientOption(f"{VARIABLE}: {error}; install tidemill[spark]") from None
    except (
        RuntimeError
    ) as error:  # numba raises it when it can write neither the package's directory nor the home directory
        advice = f"set NUMBA_CACHE_DIR to a writable directory, or {VARIABLE}=python"
        raise InvalidClientOption(f"{error}; {advice}") from None
