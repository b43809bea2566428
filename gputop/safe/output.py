"""Output: standard output, the characters its reader supports, and append-only files of ours."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import Mapping

from gputop.safe.files import Refused


def plain(ascii: str, encoding: str | None) -> bool:
    """Whether a stream of this encoding must be ASCII; `ascii` is the setting: auto, on or off."""
    return ascii == "on" or (ascii != "off" and not _is_utf8(encoding or ""))


def reader_encoding(encoding: str | None, environ: Mapping[str, str]) -> str:
    """The encoding of the reader of a standard stream, given Python's encoding of it.

    In the C locale, and in one that is not installed, Python writes UTF-8 regardless (PEP 538, PEP 540). A named locale
    without UTF-8 is trusted; an unset one, as in most containers, says nothing.
    """
    unasked = sys.flags.utf8_mode and not (environ.get("PYTHONUTF8") or environ.get("PYTHONIOENCODING"))
    named = environ.get("LC_ALL") or environ.get("LANG") or "UTF-8"  # LC_CTYPE: Python has set its own there
    return "ascii" if unasked and not _is_utf8(named) else encoding or "ascii"


def _is_utf8(name: str) -> bool:
    """Whether an encoding, or that of a locale, is UTF-8."""
    return name.lower().replace("-", "").partition("@")[0].endswith("utf8")


class StandardOutput:
    """Standard output with blocking writes."""

    def __init__(self) -> None:
        self.size = 0  # bytes written
        self._fd = os.dup(1)

    def append(self, data: bytes, whole: bool = True) -> None:  # noqa: ARG002 used for compressed files
        """Write all of it; OSError when the reader is gone."""
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self.size += written
            view = view[written:]

    def close(self) -> None:
        """Nothing to close: others write to standard output, too."""


_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class AppendOnlyFile:
    """A file of mode 0600, new or already ours, locked against a second writer."""

    def __init__(self, path: str) -> None:
        """Refused says in one line what cannot be written to and why."""
        if not path:
            raise Refused("the file name is missing: name a file, or - for standard output")
        self.path = path
        try:
            self._fd = _open(path)
        except OSError as error:
            raise Refused(f"{path}: {os.strerror(error.errno or 0)}: not written; choose another file") from None
        try:
            self.size = _checked(path, self._fd)  # bytes of complete data
        except Refused:
            os.close(self._fd)
            raise

    def withhold(self) -> None:
        """Restrict an existing file that is continued to mode 0600."""
        with contextlib.suppress(OSError):  # a file system without modes
            os.fchmod(self._fd, 0o600)

    def read(self, size: int, place: int) -> bytes:
        """Bytes from a position on, as far as there are any; OSError on a disk error."""
        return os.pread(self._fd, size, place)

    def append(self, data: bytes) -> None:
        """Write all of it; OSError leaves the file unchanged."""
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], self.size + done)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += done

    def cut(self, size: int) -> None:
        """Truncate to this size: what a crash left after it is incomplete."""
        os.ftruncate(self._fd, size)
        self.size = size

    def cut_line(self, most: int) -> bool:
        """Remove an unterminated last line; False if it is longer than `most`."""
        begin = max(0, self.size - most)
        whole = self.read(self.size - begin, begin).rfind(b"\n") + 1
        if not whole and begin:
            return False
        self.cut(begin + whole)
        return True

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _open(path: str) -> int:
    try:
        return os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    if os.path.islink(path):
        raise Refused(f"{path} is a symbolic link: not written; name its target")
    return os.open(path, _FLAGS)


def _checked(path: str, fd: int) -> int:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise Refused(f"{path} is not a regular file: not written; choose another file")
    if info.st_uid != os.geteuid():
        raise Refused(f"{path} belongs to another user (uid {info.st_uid}): not written; choose another file")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused(f"{path} is being written by another gputop: choose another file") from None
    except OSError:
        pass  # a file system without locks
    return os.fstat(fd).st_size
