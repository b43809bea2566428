"""Files of /proc that stay open between reads: same answers, never of another process, no more than there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.collect.kernel_files import CachedFile, FdCache, slurp


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_kept_file_says_what_the_file_says_now() -> None:
    file, before = CachedFile(f"/proc/{os.getpid()}/comm", FdCache()), open_files()
    assert file.read() == slurp(f"/proc/{os.getpid()}/comm")
    assert open_files() == before + 1
    own = file.read()
    with Path("/proc/self/comm").open("wb", buffering=0) as comm:
        comm.write(b"renamed")
        assert file.read() == b"renamed\n"
        comm.write(own.strip())
    file.close()
    assert open_files() == before


def test_a_kept_file_of_a_process_that_ended_says_so_whoever_has_the_pid() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        file = CachedFile(f"/proc/{child.pid}/stat", FdCache())
        assert file.read().startswith(str(child.pid).encode())
    with pytest.raises(ProcessLookupError):
        file.read()
    file.close()


def test_without_room_a_file_is_read_all_the_same() -> None:
    shelf, before = FdCache(), open_files()
    shelf.room = 1
    files = [CachedFile(f"/proc/{os.getpid()}/{name}", shelf) for name in ("stat", "statm")]
    assert all(file.read() and file.read() for file in files)
    assert (open_files() - before, shelf.room) == (1, 0)
    files[0].close()
    files[0].close()
    assert shelf.room == 1


def test_a_copy_of_proc_is_never_kept_open() -> None:
    assert FdCache("/tmp/copy").room == 0 < FdCache().room
