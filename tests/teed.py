"""The program, with a record of what the diff was given and what it sent of it: `python -m tests.teed FILE demo`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gputop.ui.driver
from gputop.cli import main
from gputop.ui.delta import Delta


class Teed:
    """A diff that keeps its books: a JSON line for each call."""

    def __init__(self, width: int, height: int) -> None:
        self._delta = Delta(width, height)
        self.size = width, height
        self._note("resize", width, height)

    def _note(self, *what: object) -> None:
        with Path(sys.argv[1]).open("a") as file:
            file.write(f"{json.dumps(what)}\n")

    def reduce(self, data: str) -> str:
        sent = self._delta.reduce(data)
        self._note("reduce", data, sent)
        return sent

    def keep(self, data: str) -> str:
        sent = self._delta.keep(data)
        self._note("keep", data, sent)
        return sent

    def forget(self) -> None:
        self._delta.forget()


if __name__ == "__main__":
    driver: Any = gputop.ui.driver
    driver.Delta = Teed
    sys.exit(main(sys.argv[2:]))
