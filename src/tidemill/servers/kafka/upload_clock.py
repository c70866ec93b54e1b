"""How long a client takes to send a request. A pause in reading does not count against it."""

UPLOAD_GRACE_S = 120.0
UPLOAD_BYTES_PER_S_MIN = 64 * 1024
"""A frame must arrive within the grace time plus its size at this rate; slower connections are closed."""


class UploadClock:
    """The times of the request of which a part has arrived, in seconds of the event loop."""

    def __init__(self) -> None:
        self.is_paused = False
        self._began = 0.0
        self._paused_at = 0.0
        self._deadline: float | None = None

    def begin(self, now: float) -> None:
        """A part of a new request arrives."""
        self._began = now

    def arrived(self, now: float, partial_bytes: int, partial_size: int) -> None:
        """A part has arrived, and no request is complete yet."""
        if self._deadline is None and partial_bytes:
            self._deadline = now + UPLOAD_GRACE_S + partial_size / UPLOAD_BYTES_PER_S_MIN

    def completed(self, now: float) -> None:
        """At least one request is complete, and what is left belongs to another."""
        self._deadline = None
        self._began = now

    def pause(self, now: float) -> None:
        """Reading pauses."""
        self.is_paused = True
        self._paused_at = now

    def resume(self, now: float) -> None:
        """Reading continues; the deadline is set by the next part."""
        self.is_paused = False
        self._deadline = None
        self._began += now - self._paused_at

    def is_over(self, now: float) -> bool:
        """Whether the request should have arrived."""
        return self._deadline is not None and now > self._deadline and not self.is_paused

    def seconds(self, now: float) -> float:
        """How long the request has been arriving."""
        return (self._paused_at if self.is_paused else now) - self._began
