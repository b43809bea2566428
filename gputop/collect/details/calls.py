"""Names of the system calls a thread may sleep in: the kernel tells the number only."""

from __future__ import annotations

import platform

# include/uapi/asm-generic/unistd.h, and arch/x86/entry/syscalls/syscall_64.tbl: (x86-64, arm64) of each
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "poll": (7, None), "mmap": (9, 222), "munmap": (11, 215), "ioctl": (16, 29), "pread64": (17, 67),
    "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "select": (23, None), "madvise": (28, 233),
    "pause": (34, None), "nanosleep": (35, 101), "sendfile": (40, 71), "connect": (42, 203), "accept": (43, 202),
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "wait4": (61, 260),
    "semop": (65, 193), "msgrcv": (70, 188), "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83),
    "ftruncate": (77, 46), "getdents": (78, None), "rename": (82, None), "unlink": (87, None),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sync": (162, 81), "futex": (202, 98),
    "getdents64": (217, 61), "semtimedop": (220, 192), "fadvise64": (221, 223), "clock_nanosleep": (230, 115),
    "epoll_wait": (232, None), "waitid": (247, 95), "openat": (257, 56), "newfstatat": (262, 79),
    "unlinkat": (263, 35), "pselect6": (270, 72), "ppoll": (271, 73), "splice": (275, 76),
    "sync_file_range": (277, 84), "epoll_pwait": (281, 22), "fallocate": (285, 47), "accept4": (288, 242),
    "preadv": (295, 69), "pwritev": (296, 70), "recvmmsg": (299, 243), "syncfs": (306, 267),
    "process_vm_readv": (310, 270), "finit_module": (313, 273), "preadv2": (327, 286), "pwritev2": (328, 287),
    "statx": (332, 291), "io_uring_enter": (426, 426), "openat2": (437, 437), "epoll_pwait2": (441, 441),
    "futex_waitv": (449, 449), "futex_wait": (455, 455),
}  # fmt: skip
_COLUMNS = {"x86_64": 0, "aarch64": 1}


def _table(machine: str) -> dict[int, str]:
    column = _COLUMNS.get(machine)
    if column is None:
        return {}
    return {number: name for name, numbers in _NUMBERS.items() if (number := numbers[column]) is not None}


_CALLS = _table(platform.machine())


def system_call(raw: bytes) -> str | None:
    """The name of the call in a `syscall` file; None when the thread runs, or is in none."""
    first = raw.split(None, 1)[0] if raw.strip() else b""
    if not first.isdigit():  # running, or -1: blocked outside a call, at a page fault say
        return None
    number = int(first)
    return _CALLS.get(number, f"call {number}")
