"""A place in a program: which function, in which file, whose code it is."""

from __future__ import annotations

import re

from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean

LONGEST = 300  # characters of a name
# what comes with Python or is installed into it, with what notebooks and compilers make up, and our agent, which may be
# no installed one; the rest is the user's
_INSTALLED = re.compile(
    r"/(?:site|dist)-packages/|/gputop/(?:agent|inject)/|/lib(?:64)?/python\d|/[^/]+\.so(?:\.\d+)*$|^<(?!ipython-input|stdin)"
)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One frame: a function that was called and not yet left. Clean text."""

    name: str
    file: str = ""  # the whole path, in the mount namespace of its process
    line: int | None = None

    @property
    def text(self) -> str:
        """`_get_data (dataloader.py:1284)`, as frames are named everywhere."""
        return frame(self.name, self.file, self.line)

    @property
    def own(self) -> bool:
        """Whether it is the user's own code."""
        return is_own(self.file)


def frame(name: str, file: str, line: int | None) -> str:
    """The name of a frame: function, last part of the file, line."""
    if not file or "(" in name:
        return name
    place = clean(file.rpartition("/")[2], LONGEST // 2)
    return f"{name} ({place})" if line is None else f"{name} ({place}:{line})"


def is_own(file: str) -> bool:
    """Whether a file is the user's own code, not Python's nor an installed package's; only whole paths can be told."""
    known = file.startswith(("/", "<")) or "ipykernel" in file
    return known and not _INSTALLED.search(file)
