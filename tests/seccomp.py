"""A kernel without some system calls: a filter in front of them, put up by the program that is to miss them."""

from __future__ import annotations

import pytest

from tests.process_watch import isolated

# `without(errno, *numbers)`: these calls fail so from now on, as old container profiles make pidfd_open fail
SECCOMP = """
import ctypes, struct
def without(errno, *numbers):
    libc = ctypes.CDLL(None, use_errno=True)
    steps = [(0x20, 0, 0, 0)]
    for place, number in enumerate(numbers): steps.append((0x15, len(numbers) - place, 0, number))
    steps += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050000 | errno)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    if libc.prctl(22, 2, program, 0, 0): sys.exit("no seccomp")
"""


def filtered(code: str) -> None:
    """Run a program that puts up the filter; a skip where the kernel has none."""
    try:
        isolated(code)
    except AssertionError as why:
        if "no seccomp" in str(why):
            pytest.skip("not covered: this kernel has no filter of system calls")
        raise
