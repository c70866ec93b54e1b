"""A clock that moves when it is told to."""


class VirtualClock:
    """Give it where a clock in milliseconds is asked for; `advance` lets time pass."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        """The time."""
        return self.now_ms

    def advance(self, milliseconds: int) -> int:
        """Let time pass; the new time. Time never goes back."""
        if milliseconds < 0:
            raise ValueError("time does not go back")
        self.now_ms += milliseconds
        return self.now_ms
