"""Files whose path a process in a container chose: what is no plain file is not even opened, as the kernel sees it."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gputop.actions.pyspy.record import source_lines
from gputop.collect.proc.builds import Builds
from gputop.doctor.machine import text
from gputop.profile import Profile
from gputop.safe import files
from tests.real_processes import until

IN_OPEN = 0x20


@contextmanager
def watched(path: Path) -> Iterator[Callable[[], bool]]:
    """Whether somebody has opened a file since, by inotify(7)."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(fd, os.fsencode(path), IN_OPEN) > 0

    def opened() -> bool:
        with suppress(BlockingIOError):
            return bool(os.read(fd, 4096))
        return False

    yield opened
    os.close(fd)


def from_doctor(path: Path) -> None:
    text(path)


def from_builds(path: Path) -> None:
    """The thread that reads versions of packages; it has come to the file when it is at the next."""
    done: list[object] = []
    good = path.parent / "good"
    good.mkdir()
    (good / "version.py").write_text("__version__ = '2.7.0'\n")
    builds = Builds()
    builds.start()
    builds.read(str(path.parent), done.append)
    builds.read(str(good), done.append)
    until(lambda: done)
    builds.stop()


def from_sources(path: Path) -> dict[str, str]:
    """What is told of its first line."""
    frame = f"train ({path.name}:1)"
    profile = Profile([((frame,), 5.0)])
    profile.files[frame] = str(path)
    return source_lines(profile, os.getpid(), os.geteuid())


def test_plain_files_are_read_through_links_and_from_folders(tmp_path: Path) -> None:
    path, link = tmp_path / "train.py", tmp_path / "link"
    path.write_text("step()\n")
    link.symlink_to(path)
    assert list(from_sources(path).values()) == ["step()"]
    with open(files.opened(link), "rb") as file:
        assert file.read() == b"step()\n"
    folder = os.open(tmp_path, os.O_PATH)
    with open(files.opened("train.py", folder=folder, links=False), "rb") as file:
        assert file.read() == b"step()\n"
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        files.opened("link", folder=folder, links=False)
    with pytest.raises(OSError, match="not a regular file"):
        files.opened(tmp_path)
    os.close(folder)


@pytest.mark.parametrize("reader", [from_doctor, from_builds, from_sources, files.opened])
def test_what_is_no_plain_file_is_not_opened(reader: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "version.py"
    os.mkfifo(path)
    with watched(path) as opened:
        with suppress(OSError):
            reader(path)
        assert not opened()
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        assert opened(), "the watch works"
