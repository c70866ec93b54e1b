"""A clock for tests that only moves by `advance`."""


class VirtualClock:
    """A callable clock in milliseconds. `advance` moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """The current time in milliseconds."""
        return self.now_ms

    def advance(self, milliseconds: int) -> int:
        """Move the clock forward and return the new time."""
        if milliseconds < 0:
            raise ValueError(f"cannot advance by {milliseconds} ms: the clock only moves forward")
        self.now_ms += milliseconds
        return self.now_ms
