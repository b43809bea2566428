"""A code location: function, file, and whether it is the user's code."""

from __future__ import annotations

import re

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean

LONGEST = 300  # characters of a name
# paths of Python itself and of installed packages, names made up by notebooks and compilers, and our agent, which may
# not be installed; the rest is the user's
_INSTALLED = re.compile(
    r"/(?:site|dist)-packages/|/gputop/(?:agent|inject)/|/lib(?:64)?/python\d|/[^/]+\.so(?:\.\d+)*$|^<(?!ipython-input|stdin)"
)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One frame: an active function call. Sanitized text."""

    name: str
    file: str = ""  # the full path in the mount namespace of its process
    line: int | None = None

    @property
    def text(self) -> str:
        """`_get_data (dataloader.py:1284)`, the form of frames everywhere."""
        return frame(self.name, self.file, self.line)

    @property
    def own(self) -> bool:
        """Whether it is the user's own code."""
        return is_own(self.file)


def frame(name: str, file: str, line: int | None) -> str:
    """The name of a frame: function, file name, line."""
    if not file or "(" in name:
        return name
    place = clean(file.rpartition("/")[2], LONGEST // 2)
    return f"{name} ({place})" if line is None else f"{name} ({place}:{line})"


def is_own(file: str) -> bool:
    """Whether a file is the user's own code, not Python's or an installed package's; decided for full paths only."""
    known = file.startswith(("/", "<")) or "ipykernel" in file
    return known and not _INSTALLED.search(file)
