"""Which kernels this process uses: TIDEMILL_KERNELS=python or numba, or else the fastest that is installed.

The fastest ones take a second to load into a new process, more than the others need for some ten thousand records. So a
process that has little to do begins with the reference, and changes when it turns out that there is more.
"""

import os
import sys
from collections.abc import Callable, Mapping

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.records.arrow import Kernels, load_kernels

VARIABLE = "TIDEMILL_KERNELS"
RECORDS_BY_REFERENCE = 20_000
"""What the reference does in about the time that the fastest kernels take to load."""


class KernelChoice:
    """Chooses as the work of a process goes on."""

    def __init__(self, loaded: Callable[[], bool] = lambda: "numba" in sys.modules) -> None:
        self._loaded = loaded
        self._records = 0

    def of(self, records: int, environ: Mapping[str, str] = os.environ) -> Kernels:
        """The kernels for so many more records."""
        self._records += records
        if VARIABLE in environ or self._loaded() or self._records > RECORDS_BY_REFERENCE:
            return chosen_kernels(environ)
        return load_kernels("python")


HERE = KernelChoice()
"""That of this process."""


def chosen_kernels(environ: Mapping[str, str] = os.environ) -> Kernels:
    """The kernels that the environment asks for."""
    try:
        return load_kernels(environ.get(VARIABLE) or None)
    except ValueError as error:
        raise InvalidClientOption(f"{VARIABLE}: {error}") from None
    except ImportError as error:
        raise InvalidClientOption(f"{VARIABLE}: {error}; install tidemill[spark]") from None
    except RuntimeError as error:  # numba says so when neither the package's folder nor the home can be written
        advice = f"set NUMBA_CACHE_DIR to a folder that can be written, or {VARIABLE}=python"
        raise InvalidClientOption(f"{error}; {advice}") from None
