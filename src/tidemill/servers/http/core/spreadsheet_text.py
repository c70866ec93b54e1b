"""Makes CSV safe for spreadsheets, which run a text that begins like a formula. Keys and values come from clients."""

import re

# The engine puts texts into quotation marks, doubles those inside, and ends lines with \n; numbers have none. A mark
# after a comma or at the start of a line, and before one of these characters, begins a text: a mark inside a text is
# next to another one, and after the last mark of a text comes a comma or the end of the line.
_FORMULA = re.compile(rb'(?m)(^|,)"(?=[=+\-@\t\r])')


def guard_formulas(csv: bytes) -> bytes:
    """The same CSV, with an apostrophe before each text that begins like a formula."""
    return _FORMULA.sub(b"\\1\"'", csv)
