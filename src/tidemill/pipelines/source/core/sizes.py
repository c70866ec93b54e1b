"""Parses sizes in Spark's notation, such as `512m` or `1g`.

Units are powers of 1,024. A number without a unit is in bytes.
"""

import re

from tidemill.pipelines.errors import WrongOption

BYTES_MAX = 2**63 - 1
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_bytes(name: str, text: str) -> int:
    """Parse a size above 0. `name` is the option that sets it."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * 1024 ** _POWERS[found[2].lower()] if found else 0
    if not 0 < size <= BYTES_MAX:
        raise WrongOption(f"{name}: {text!r} is not a size above 0 such as 1000000, 512m or 1g")
    return size
