"""Drops the privileges of the query process before it sees a query.

`prepare` runs first: resource limits, a low priority, exit with the broker, and no network where possible. `confine`
runs when the engine is loaded and warm: another user when the broker is root, then the seccomp filter, for all threads.
Both return the active protections. Only `SECCOMP` counts as a sandbox. The others are additional layers, and some
platforms lack them.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import sys
from pathlib import Path

from tidemill.query_engine import seccomp

SECCOMP = "seccomp"
NICENESS = 10
NOBODY = 65534
DATA_MARGIN_BYTES = 1 << 30
"""Address space for threads and the allocator, in addition to twice the memory of a query."""
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_SET_MODE_FILTER, _FILTER_FLAG_TSYNC = 1, 1
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_supported() -> bool:
    """Whether this platform has the sandbox."""
    return sys.platform == "linux" and platform.machine() in seccomp.ARCHITECTURES


def prepare(parent_id: int) -> list[str]:
    """Apply the limits under which the engine can still be loaded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the broker handles Ctrl-C
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = ["empty environment", "low priority", "no core files"]
    if sys.platform != "linux":
        return found
    libc = ctypes.CDLL(None, use_errno=True)
    _end_with(libc, parent_id)
    found.append("ends with the broker")
    with contextlib.suppress(OSError):  # without memory, the kernel kills this process before the broker
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    if libc.unshare(flags) == 0:
        found.append("network namespace")
    return found


def confine(memory_bytes: int, parent_id: int) -> list[str]:
    """Drop everything that computing does not need. Nothing can be opened after this."""
    for each in _CRASHES:  # the engine's handlers open files to describe a crash, and never return
        signal.signal(each, signal.SIG_DFL)
    found = ["no files written", "data limit"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform != "linux":
        return found[:1]
    data_bytes = _status_bytes("VmData") + 2 * memory_bytes + DATA_MARGIN_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        found.append("user nobody")
    libc = ctypes.CDLL(None, use_errno=True)
    _end_with(libc, parent_id)  # the change of user has reset it
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        found.append("no new privileges")
    if is_supported() and _filter(libc):
        found.append(SECCOMP)
    return found


def _end_with(libc: ctypes.CDLL, parent_id: int) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_id:
        os._exit(1)  # the broker ended before the line above


def _filter(libc: ctypes.CDLL) -> bool:
    machine = platform.machine()
    code = seccomp.program(machine, os.getpid())
    program = _Program(len(code) // 8, code)
    done = libc.syscall(_SECCOMP_CALL[machine], _SET_MODE_FILTER, _FILTER_FLAG_TSYNC, ctypes.byref(program))
    return bool(done == 0)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0
