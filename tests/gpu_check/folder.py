"""Where a run keeps what it saw: a new folder of mode 0700, files of mode 0600, a line of JSON a record."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TextIO


class Folder:
    """A folder that did not exist before."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        self.path = path
        self._files: dict[str, TextIO] = {}

    def line(self, name: str, data: dict[str, Any]) -> None:
        """Adds one line of JSON to a file of this folder."""
        self.text(name, json.dumps(data, separators=(",", ":"), default=str) + "\n")

    def text(self, name: str, text: str) -> None:
        """Adds text to a file of this folder; it is on disk when this returns."""
        file = self.file(name)
        file.write(text)
        file.flush()

    def file(self, name: str) -> TextIO:
        """A file of this folder, open for writing; the same one each time."""
        if name not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self.path / name, flags, 0o600)
            self._files[name] = os.fdopen(fd, "w", encoding="utf-8", errors="replace")
        return self._files[name]

    def close(self) -> None:
        """Closes every file."""
        for file in self._files.values():
            file.close()
