"""Checks which addresses this machine can listen on."""

import socket


def speaks_ipv6() -> bool:
    """Whether this machine can listen on ::1. Some containers have IPv4 only."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
