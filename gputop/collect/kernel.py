"""Where the kernel answers, /proc and /sys, read raw; a test gives copies of them."""

from __future__ import annotations

import os
from collections.abc import Callable

from gputop.collect.files import slurp_all, why
from gputop.collect.gate import NoAnswer
from gputop.declare import record
from gputop.model import Reason
from gputop.safe.text import decode

Read = Callable[[str], bytes]

_LIMIT = 1 << 24  # a mount table of tens of thousands of lines


def read_file(path: str) -> bytes:
    """All bytes of a file; OSError as the kernel gave it."""
    return slurp_all(path, _LIMIT)


def reason(error: Exception) -> Reason:
    """Why a read gave no value, in the model's words; text that is not as documented counts as unsupported."""
    if not isinstance(error, OSError):
        return "unsupported"
    known = why(error)
    return "absent" if known == "gone" else known


@record(frozen=True, slots=True)
class Kernel:
    """Where /proc, /sys and shared memory are, and the function that reads a file."""

    proc_root: str = "/proc"
    sys_root: str = "/sys"
    shm: str = "/dev/shm"
    read: Read = read_file
    listed: Callable[[str], list[str]] = os.listdir

    def proc(self, name: str) -> bytes:
        """A file of /proc; OSError where there is none."""
        return self.read(f"{self.proc_root}/{name}")

    def sys(self, name: str) -> bytes:
        """A file of /sys; OSError where there is none."""
        return self.read(f"{self.sys_root}/{name}")

    def word(self, name: str) -> str | None:
        """The clean text of a small file of /sys; None where it has none."""
        try:
            return decode(self.sys(name).strip(), 256) or None
        except NoAnswer:
            raise
        except OSError:
            return None

    def number(self, name: str) -> int | None:
        """The number a small file of /sys holds; None where it holds none, or is not there."""
        try:
            return int(self.sys(name))
        except NoAnswer:
            raise
        except (OSError, ValueError):
            return None

    def names(self, name: str) -> tuple[str, ...]:
        """What a folder of /sys holds, sorted; nothing where it is not there."""
        return self._names(f"{self.sys_root}/{name}")

    def proc_names(self, name: str) -> tuple[str, ...]:
        """The same of a folder of /proc."""
        return self._names(f"{self.proc_root}/{name}")

    def _names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(self.listed(folder)))
        except OSError:
            return ()
