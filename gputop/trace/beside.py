"""Large traces are decoded by a process beside ours: half of the work is JSON, and the other half is done meanwhile."""

from __future__ import annotations

import fcntl
import marshal
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import gputop
from gputop.safe import programs
from gputop.safe.files import Refused
from gputop.trace.events import Events, NoTrace
from gputop.trace.text import Text

LARGE_BYTES = 8 << 20  # below, starting a process costs more than it wins
_LARGE_PACKED_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 20  # that process may be so far ahead of us; as much as a user may have in a pipe
_LENGTH = 4  # bytes of a number before each message, which is marshalled: only our own process writes there
# without what a user's environment or folder would put before the standard library
_START = "import sys; sys.path.append(sys.argv[1]); from gputop.trace.beside import tell; tell(sys.argv[2])"


def decoded(text: Text) -> Events | Beside:
    """The events of a file, from a process of their own where that is faster."""
    large = text.size_bytes >= (_LARGE_PACKED_BYTES if text.packed else LARGE_BYTES)
    return Beside(text) if large and (os.cpu_count() or 1) > 1 else Events(text.pieces())


class Beside:
    """What `Events` has, read elsewhere; how far that is, and what is wrong with the text, is told to the text."""

    def __init__(self, text: Text) -> None:
        self.head: dict[str, Any] = {}
        self.notes: list[str] = []
        self._text = text

    def batches(self) -> Iterator[list[Any]]:
        """Lists of decoded events; NoTrace if the text has no list of events."""
        package = str(Path(gputop.__file__).parents[1])
        command = [sys.executable, "-I", "-c", _START, package, f"/dev/fd/{self._text.fd}"]
        nothing, pipe = programs.DEVNULL, programs.PIPE
        with programs.start(command, stdin=nothing, stdout=pipe, stderr=nothing, pass_fds=(self._text.fd,)) as reader:
            assert reader.stdout is not None
            with suppress(OSError):  # all pipes of a user together have a limit
                fcntl.fcntl(reader.stdout, fcntl.F_SETPIPE_SZ, _AHEAD_BYTES)
            try:
                yield from self._batches(reader.stdout)
            finally:
                reader.kill()  # whoever listened may have had enough

    def _batches(self, pipe: IO[bytes]) -> Iterator[list[Any]]:
        while length := pipe.read(_LENGTH):
            self._text.read_bytes, batch, end = marshal.loads(pipe.read(int.from_bytes(length, "little")))
            if end is None:
                yield batch
                continue
            self.head, self.notes, notes, no_trace = end
            self._text.notes += notes
            if no_trace is not None:
                raise NoTrace(no_trace)
            return
        raise Refused(f"{self._text.path}: the process that decodes it was ended: there may be too little memory")


def tell(path: str) -> None:
    """The other side: decode a file and write its batches, then what went wrong, to standard output."""
    text, no_trace = Text(path), None
    events = Events(text.pieces())
    try:
        for batch in events.batches():
            _write((text.read_bytes, batch, None))
    except NoTrace as reason:
        no_trace = str(reason)
    _write((text.read_bytes, None, (events.head, events.notes, text.notes, no_trace)))


def _write(message: tuple[Any, ...]) -> None:
    raw = marshal.dumps(message)
    sys.stdout.buffer.write(len(raw).to_bytes(_LENGTH, "little") + raw)
    sys.stdout.buffer.flush()
