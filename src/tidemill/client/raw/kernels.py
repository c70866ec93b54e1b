"""Which kernels this process uses: TIDEMILL_KERNELS=python or numba, or else the fastest that is installed."""

import os
from collections.abc import Mapping

from tidemill.client.raw.errors import InvalidOption
from tidemill.records.arrow import Kernels, kernels

VARIABLE = "TIDEMILL_KERNELS"


def chosen_kernels(environ: Mapping[str, str] = os.environ) -> Kernels:
    """The kernels that the environment asks for."""
    try:
        return kernels(environ.get(VARIABLE) or None)
    except ValueError as error:
        raise InvalidOption(f"{VARIABLE}: {error}") from None
    except ImportError as error:
        raise InvalidOption(f"{VARIABLE}: {error}; install tidemill[spark]") from None
    except RuntimeError as error:  # numba says so when neither the package's folder nor the home can be written
        advice = f"set NUMBA_CACHE_DIR to a folder that can be written, or {VARIABLE}=python"
        raise InvalidOption(f"{error}; {advice}") from None
