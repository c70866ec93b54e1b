"""The seccomp filter of the query process: only the system calls that computing needs.

Computing needs memory, threads, time and the file descriptors that are already open. No allowed call opens a file,
creates a socket, starts a program or affects another process. Those fail with EPERM, so that the engine reports an
error. The filter is built here as bytes and installed by `confinement`.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
ALLOW = 0x7FFF0000
KILL = 0x80000000
_ERRNO = 0x00050000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x10000
_X32_BIT = 0x40000000

PLAIN_CALLS = (
    "read",
    "write",
    "readv",
    "writev",
    "pread64",
    "pwrite64",
    "lseek",
    "close",
    "fstat",
    "fcntl",
    "dup",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "shutdown",
    "ppoll",
    "pselect6",
    "epoll_create1",
    "epoll_ctl",
    "epoll_pwait",
    "eventfd2",
    "pipe2",
    "timerfd_create",
    "timerfd_settime",
    "mmap",
    "munmap",
    "mremap",
    "mprotect",
    "madvise",
    "brk",
    "membarrier",
    "futex",
    "set_robust_list",
    "get_robust_list",
    "set_tid_address",
    "rseq",
    "sched_yield",
    "sched_getaffinity",
    "getcpu",
    "getpid",
    "gettid",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "getppid",
    "getrusage",
    "times",
    "sysinfo",
    "uname",
    "clock_gettime",
    "clock_getres",
    "clock_nanosleep",
    "nanosleep",
    "gettimeofday",
    "getitimer",
    "setitimer",
    "timer_create",
    "timer_settime",
    "timer_delete",
    "timer_getoverrun",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigtimedwait",
    "sigaltstack",
    "restart_syscall",
    "getrandom",
    "exit",
    "exit_group",
)
"""Allowed with any arguments."""
_X86_64_ONLY = ("arch_prctl", "poll", "epoll_wait", "select", "time")
CHECKED_CALLS = ("clone", "clone3", "tgkill", "prlimit64", "prctl")
"""Allowed with some arguments only."""
_PRCTL_NAMES = (15, 16, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME, PR_SET_VMA."""


class Architecture(NamedTuple):
    """The system call numbers of a processor architecture."""

    audit_code: int
    numbers: Mapping[str, int]


_X86_64 = {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11,
    "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "pwrite64": 18,
    "readv": 19, "writev": 20, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32,
    "nanosleep": 35, "getitimer": 36, "setitimer": 38, "getpid": 39, "sendto": 44, "recvfrom": 45, "sendmsg": 46,
    "recvmsg": 47, "shutdown": 48, "clone": 56, "exit": 60, "uname": 63, "fcntl": 72, "gettimeofday": 96,
    "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108,
    "getppid": 110, "rt_sigtimedwait": 128, "sigaltstack": 131, "prctl": 157, "arch_prctl": 158, "gettid": 186,
    "time": 201, "futex": 202, "sched_getaffinity": 204, "set_tid_address": 218, "restart_syscall": 219,
    "timer_create": 222, "timer_settime": 223, "timer_getoverrun": 225, "timer_delete": 226, "clock_gettime": 228,
    "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "epoll_wait": 232, "epoll_ctl": 233,
    "tgkill": 234, "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "get_robust_list": 274,
    "epoll_pwait": 281, "timerfd_create": 283, "timerfd_settime": 286, "eventfd2": 290, "epoll_create1": 291,
    "pipe2": 293, "prlimit64": 302, "getcpu": 309, "getrandom": 318, "membarrier": 324, "rseq": 334, "clone3": 435,
}  # fmt: skip
_ARM64 = {
    "epoll_create1": 20, "epoll_ctl": 21, "epoll_pwait": 22, "eventfd2": 19, "dup": 23, "fcntl": 25, "close": 57,
    "pipe2": 59, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68,
    "pselect6": 72, "ppoll": 73, "fstat": 80, "timerfd_create": 85, "timerfd_settime": 86, "exit": 93,
    "exit_group": 94, "set_tid_address": 96, "futex": 98, "set_robust_list": 99, "get_robust_list": 100,
    "nanosleep": 101, "getitimer": 102, "setitimer": 103, "timer_create": 107, "timer_getoverrun": 109,
    "timer_settime": 110, "timer_delete": 111, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
    "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "tgkill": 131, "sigaltstack": 132,
    "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigtimedwait": 137, "rt_sigreturn": 139, "times": 153,
    "uname": 160, "getrusage": 165, "prctl": 167, "getcpu": 168, "gettimeofday": 169, "getpid": 172, "getppid": 173,
    "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178, "sysinfo": 179, "sendto": 206,
    "recvfrom": 207, "shutdown": 210, "sendmsg": 211, "recvmsg": 212, "brk": 214, "munmap": 215, "mremap": 216,
    "clone": 220, "mmap": 222, "mprotect": 226, "madvise": 233, "prlimit64": 261, "getrandom": 278,
    "membarrier": 283, "rseq": 293, "clone3": 435,
}  # fmt: skip
ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture(0xC000003E, _X86_64),
    "aarch64": Architecture(0xC00000B7, _ARM64),
}
"""By the machine name that the system reports."""


def program(machine: str, process_id: int) -> bytes:
    """Return the filter for a process, as an array of `sock_filter`. Raise KeyError for another processor."""
    architecture = ARCHITECTURES[machine]
    numbers = architecture.numbers
    names = PLAIN_CALLS + (_X86_64_ONLY if machine == "x86_64" else ())
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, architecture.audit_code),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
    ]
    for name in names:
        code += [(_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, ALLOW)]
    # The C library falls back to clone, whose flags a filter can check.
    code += [(_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    code += _with_argument(numbers["clone"], 0, [(_ANY_BIT, _CLONE_THREAD)])
    code += _with_argument(numbers["tgkill"], 0, [(_EQUAL, process_id)])
    code += _with_argument(numbers["prlimit64"], 0, [(_EQUAL, 0)])
    code += _with_argument(numbers["prctl"], 0, [(_EQUAL, each) for each in _PRCTL_NAMES])
    code.append((_RETURN, 0, 0, _ERRNO | _EPERM))
    return b"".join(struct.pack("=HBBI", *each) for each in code)


def _with_argument(number: int, argument: int, tests: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Allow a call if the low half of its argument passes one of the tests."""
    code = [(_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument)]
    for test, value in tests:
        code += [(test, 0, 1, value), (_RETURN, 0, 0, ALLOW)]
    code.append((_RETURN, 0, 0, _ERRNO | _EPERM))
    return [(_EQUAL, 0, len(code), number), *code]
