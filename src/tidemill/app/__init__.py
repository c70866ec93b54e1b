"""The composition root: settings -> adapters -> broker -> doors. Nothing below knows which adapters were chosen."""
