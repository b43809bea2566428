"""A mount that never answers, as that of a file server that is gone: FUSE without anybody behind it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_FORCE, _DETACH = 1, 2  # MNT_* of umount(2)
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def dead_mount(folder: Path) -> Iterator[None]:
    """Whoever opens something in this folder waits until the end, deaf to signals that it handles."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"not covered: /dev/fuse: {error.strerror}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    try:
        if _libc.mount(b"dead", os.fsencode(folder), b"fuse", 6, options):
            pytest.skip(f"not covered: no right to mount: {os.strerror(ctypes.get_errno())}")
        yield
    finally:
        os.close(device)  # who waits is told that it is gone
        _libc.umount2(os.fsencode(folder), _FORCE | _DETACH)
