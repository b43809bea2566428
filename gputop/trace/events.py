"""Decode the events of a Chrome trace from pieces of text, thousands at a time, in constant memory."""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import gputop
from gputop.safe import programs
from gputop.safe.files import Refused
from gputop.trace.names import UNQUOTED
from gputop.trace.text import Text

PATHS, NUMBERS, CONTROLS, QUOTES = "paths of Windows", "nan, inf", "tabs and line ends in names", "quotes in names"
COMMAS = "commas"  # between events, or entries of the header: missing, or more than one
_BARE = re.compile(
    r"(?<=[:,\[\s])(?!-?(?-i:NaN|Infinity)\b)([-+]?)(nan|inf(?:inity)?)(?:\([a-z0-9]*\))?(?=\s*[,\]}])", re.IGNORECASE
)
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL = re.compile(r"[\x01-\x1f]")
_KEY = re.compile(r'"\s*:')  # in a name: its end is missing, and it continues in the next event
_AFTER = re.compile(r"\s*(?:[,\]]|$)")  # what follows an event
_MOST_QUOTES = 100  # per event
_MOST_CHARS = 1 << 16  # of such an event

Found = dict[str, int]  # number of each kind
decode_lenient = json.JSONDecoder(strict=False).raw_decode


def repair(part: str) -> tuple[str, Found]:
    """The text with bare words and invalid escapes repaired, and the number of repairs.

    Old Kineto files contain N/A without quotes; this is known and not counted.
    """
    part = UNQUOTED.sub("null", part)
    paths = 0
    if "\\" in part:
        part, paths = _escaped(part)
    part, bare = _BARE.subn(_json_number, part)
    return part, {PATHS: paths, NUMBERS: bare}


def controls(part: str) -> Found:
    """Number of strings with unescaped control characters; the text is JSON otherwise."""
    return {CONTROLS: sum(1 for text in _STRING.finditer(part) if _CONTROL.search(text[0]))}


def repaired_event(text: str, at: int) -> tuple[Any, int, Found] | None:
    """The event that starts here despite raw tabs, line breaks or quotes in its strings; its end, and its defects.

    None if it cannot be repaired, or only by taking part of the next event as a name.
    """
    part = text[at : at + _MOST_CHARS]
    places: list[int] = []  # where a quote is now escaped, in the text with the others escaped
    while len(places) <= _MOST_QUOTES:
        try:
            value, end = decode_lenient(part)
            wrong = [] if _AFTER.match(part, end) else [_quote_before(part, end)]
        except json.JSONDecodeError as error:
            value, end, wrong = None, 0, _quotes(part, error)
        except (RecursionError, ValueError):  # nested too deeply, or an overlong number
            return None
        if wrong and wrong[0] >= 0:
            for place in reversed(wrong):
                part = f"{part[:place]}\\{part[place:]}"
                places = [known + (known > place) for known in places] + [place]
            continue
        if wrong or not end:
            return None
        whole, raw = part[:end], controls(part[:end])
        strings = [found for found in _STRING.finditer(whole) if any(found.start() < p < found.end() for p in places)]
        if "\0" in whole or any(_KEY.search(found[0]) or "\n" in found[0] for found in strings):
            return None
        return value, at + end - len(places), {**raw, QUOTES: len(strings)}
    return None


def _quotes(part: str, error: json.JSONDecodeError) -> list[int]:
    """Quotes that ended a string too early or started one within another, by the decoder's error."""
    close = _quote_before(part, error.pos)
    if close < 0 or part[close + 1 : error.pos].strip(" \t\r\n,"):
        return []
    if error.msg.startswith(("Expecting ',' delimiter", "Expecting property name")):
        return [close]
    if error.msg.startswith("Expecting ':' delimiter"):  # the supposed key is part of the value before
        begin = _quote_before(part, close)
        before = _quote_before(part, begin)
        if before >= 0 and not part[before + 1 : begin].strip(" \t\r\n,"):
            return [before, begin]
    return []


def _quote_before(part: str, at: int) -> int:
    """The last unescaped quote before a position; -1 if there is none."""
    while (at := part.rfind('"', 0, max(at, 0))) >= 0:
        if (at - len(part[:at].rstrip("\\"))) % 2 == 0:
            return at
    return -1


def _escaped(part: str) -> tuple[str, int]:
    """Escape backslashes that escape nothing, as in Windows paths."""
    wrong = 0

    def better(found: re.Match[str]) -> str:
        nonlocal wrong
        if len(found[0]) > 1:
            return found[0]
        wrong += 1
        return "\\\\"

    return _ESCAPE.sub(better, part), wrong


def _json_number(found: re.Match[str]) -> str:
    minus = "-" if found[1] == "-" else ""
    return "NaN" if found[2].lower() == "nan" else f"{minus}Infinity"


MOST_EVENTS = 50_000_000
MOST_DAMAGE = 1_000  # decimal places; more are invented
MOST_LOST = 1 << 26  # characters between events, in total: a hole in the file, or no trace at all
MOST_VALUE = 1 << 22  # characters of one header entry: thousands of ranks are listed there
MOST_EVENT = 1 << 18
NOTHING = object()
HEAD = frozenset({"baseTimeNanoseconds", "deviceProperties", "distributedInfo", "traceName", "with_stack"})
_STRETCH = 1 << 18
_FEW, _MANY = 64, 4096  # events decoded one by one before a stretch is tried again: more after repeated failure
EARLY = ("read up to there", "the rest is not read")  # end of notes on incomplete reading
DAMAGED = "skipped"  # end of the note on an omission in the middle
_SPACE = re.compile(r"[\s,\ufeff]*")
_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|pid|ts)"')
_END = re.compile(r"\}\s*(?=\])")  # of the list of events


class NoTrace(Exception):
    """The text is not a trace; the message says what it is instead."""


class Events:
    """Batches of events. Everything outside the list is in `head`, problems are in `notes`."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.head: dict[str, Any] = {}
        self.notes: list[str] = []
        self.damaged = 0
        self._lost = 0  # characters skipped
        self.repaired: Counter[str] = Counter()  # invalid JSON values written by other programs, by kind
        self.ended = False  # the text is complete
        self.full = False  # more events than are read
        self._pieces = pieces
        self._text = ""
        self._at = 0
        self._over = False  # no more pieces
        self._few_events = _FEW
        self._begun = False  # an event was read, so a comma precedes the next one
        self._passed = 0  # commas skipped
        self._decode = json.JSONDecoder().raw_decode

    def batches(self) -> Iterator[list[Any]]:
        """Lists of decoded events; raises NoTrace if the text has no event list."""
        first = self._peek()
        if first == "[":
            self._at += 1
            yield from self._listed()
        elif first == "{":
            self._at += 1
            yield from self._keyed()
        else:
            raise NoTrace("not JSON" if first else "empty file")
        if self._gives_up:
            self.notes.append("too damaged: the rest is not read")
        elif not self.ended:
            self.notes.append("the file is truncated: read up to there")
        elif not self.full and self._peek():
            self.notes.append("data follows the end of the trace: the rest is not read")
        if self.damaged:
            places = "places were" if self.damaged != 1 else "place was"
            self.notes.append(f"{self.damaged} damaged {places} {DAMAGED}")
        if repaired := self.repaired.total():
            kinds = ", ".join(kind for kind, count in self.repaired.items() if count)
            values = "values that are not JSON were" if repaired != 1 else "value that is not JSON was"
            self.notes.append(f"{repaired} {values} repaired: {kinds}")

    def _keyed(self) -> Iterator[list[Any]]:
        found, known, self._passed = False, 0, 0
        while (sign := self._peek()) == '"':
            self.repaired[COMMAS] += self._passed != (known > 0)
            known += 1
            key = self._value(MOST_VALUE)
            if not isinstance(key, str) or self._peek() != ":":
                break
            self._at += 1
            if key == "traceEvents" and self._peek() == "[":
                self._at += 1
                found = True
                yield from self._listed()
                if not self.ended:
                    return
                self.ended, self._passed = False, 0
                continue
            value = self._value(MOST_VALUE)
            if value is NOTHING:
                break
            self._passed = 0
            if key in HEAD:
                self.head[key] = value
        self.ended = sign == "}"
        self.repaired[COMMAS] += self._passed if self.ended else 0
        self._at += self.ended
        if not found:
            raise NoTrace("no traceEvents in it")

    def _listed(self) -> Iterator[list[Any]]:
        """The events up to the end of their list; `ended` says whether it was found."""
        count = 0
        while True:
            self._fill(_STRETCH)
            batch = self._stretch()
            if not batch:
                batch = self._one_by_one()
            yield batch
            count += len(batch)
            if self.ended or (self._over and self._at >= len(self._text)) or self._gives_up:
                return
            if count >= MOST_EVENTS:
                self.notes.append(f"more than {MOST_EVENTS:,} events: the rest is not read")
                self.ended = self.full = True
                return

    def _stretch(self) -> list[Any]:
        """A stretch of apparently complete events as one list; empty if it cannot be decoded."""
        text = self._text
        last = text.rfind('"ph"', self._at, self._at + _STRETCH)
        begin = text.rfind("{", self._at, last) if last > 0 else -1
        end = text.rfind("}", self._at, begin) if begin > 0 else -1
        if end < 0:
            return []
        begin = _SPACE.match(text, self._at).end()  # type: ignore[union-attr]
        part = text[begin : end + 1]
        batch = _loads(part)
        if batch is None:
            mended, found = repair(part)
            batch = _loads(mended) if mended != part else None
            if batch is None and (batch := _loads(mended, strict=False)):
                found |= controls(mended)
            if batch:
                self.repaired.update(found)
        if batch:
            self._check_commas(text.count(",", self._at, begin))
            self._at, self._few_events = end + 1, _FEW
        else:
            self._few_events = min(2 * self._few_events, _MANY)
        return batch or []

    def _one_by_one(self) -> list[Any]:
        """A few events one by one, skipping damage."""
        batch: list[Any] = []
        while len(batch) < self._few_events:
            self._passed = 0
            sign = self._peek()
            if sign == "]":
                self.repaired[COMMAS] += self._passed
                self._at += 1
                self.ended = True
                break
            if not sign:
                break
            event = self._value(MOST_EVENT)
            if event is not NOTHING:
                self._check_commas(self._passed)
                batch.append(event)
            elif not self._resume():
                break
        return batch

    def _check_commas(self, commas: int) -> None:
        """Check the commas before an event: one between two events, none before the first."""
        self.repaired[COMMAS] += commas != self._begun
        self._begun = True

    def _resume(self) -> bool:
        """Continue at the next event after damage; False if there is none."""
        found, began = _EVENT.search(self._text, self._at + 1), self._at
        if not found:
            end = _END.search(self._text, self._at) if self._over else None
            self._at = end.end() if end else len(self._text)
            self._lost += self._at - began
            self.damaged += end is not None or not self._over
            return (end is not None or not self._over) and not self._gives_up
        self.damaged += 1
        self._begun = False  # what is in between is reported as damaged
        self._at = found.start()
        self._lost += self._at - began
        return not self._gives_up

    @property
    def _gives_up(self) -> bool:
        """Whether to stop searching for a complete event."""
        return self.damaged >= MOST_DAMAGE or self._lost > MOST_LOST

    def _value(self, limit: int) -> Any:
        """The value that starts here, up to `limit` characters; NOTHING if there is no complete one."""
        self._peek()
        mended = False
        while True:
            try:
                value, end = self._decode(self._text, self._at)
                if end < len(self._text) or self._over:
                    self._at = end
                    return value
            except (ValueError, RecursionError):
                pass
            ahead = len(self._text) - self._at
            if not self._over and ahead < limit:
                self._fill(2 * ahead + 1)
            elif raw := repaired_event(self._text, self._at):
                value, self._at, found = raw
                self.repaired.update(found)
                return value
            elif mended:
                return NOTHING
            else:
                mended = True
                rest = self._text[self._at :]
                better, found = repair(rest)
                if better == rest:
                    return NOTHING
                self._text, self._at = better, 0
                self.repaired.update(found)

    def _peek(self) -> str:
        """The next character that is neither white space nor a comma; empty at the end of the text or of the limit."""
        blank = 0
        while blank <= MOST_LOST:
            blank -= self._at
            begin, self._at = self._at, _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            self._passed += self._text.count(",", begin, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if self._over:
                return ""
            blank += self._at
            self._fill(1)
        self._over = True
        return ""

    def _fill(self, wanted: int) -> None:
        """Have this many characters buffered, if the text has them."""
        if len(self._text) - self._at >= wanted:
            return
        parts = [self._text[self._at :]]
        size = len(parts[0])
        while size < wanted and not self._over:
            piece = next(self._pieces, None)
            if piece is None:
                self._over = True
            else:
                parts.append(piece)
                size += len(piece)
        self._text, self._at = "".join(parts), 0


def _loads(part: str, *, strict: bool = True) -> list[Any] | None:
    if not strict and "\0" in part:  # a hole in the file
        return None
    try:
        batch = json.loads(f"[{part}]", strict=strict)
    except (ValueError, RecursionError):
        return None
    return batch if isinstance(batch, list) else None


LARGE_BYTES = 8 << 20  # below, starting a process costs more than it saves
_LARGE_PACKED_BYTES = 1 << 20
_AHEAD_BYTES = 1 << 20  # how far that process may read ahead; a user's pipe limit
_LENGTH = 4  # bytes of the length before each marshalled message: only our own process writes there
# exclude from sys.path what a user's environment or folder would put before the standard library
_START = (
    "import sys; sys.path.append(sys.argv[1]); from gputop.trace.events import write_events; write_events(sys.argv[2])"
)


def decoded(text: Text) -> Events | ProcessEvents:
    """The events of a file, decoded in a separate process where that is faster."""
    large = text.size_bytes >= (_LARGE_PACKED_BYTES if text.packed else LARGE_BYTES)
    return ProcessEvents(text) if large and (os.cpu_count() or 1) > 1 else Events(text.pieces())


class ProcessEvents:
    """The interface of `Events` over a separate process; progress and problems are passed on to the text."""

    def __init__(self, text: Text) -> None:
        self.head: dict[str, Any] = {}
        self.notes: list[str] = []
        self._text = text

    def batches(self) -> Iterator[list[Any]]:
        """Lists of decoded events; raises NoTrace if the text has no event list."""
        package = str(Path(gputop.__file__).parents[1])
        command = [sys.executable, "-I", "-c", _START, package, f"/dev/fd/{self._text.fd}"]
        nothing, pipe = programs.DEVNULL, programs.PIPE
        with programs.start(command, stdin=nothing, stdout=pipe, stderr=nothing, pass_fds=(self._text.fd,)) as reader:
            assert reader.stdout is not None
            with suppress(OSError):  # all pipes of a user share one limit
                fcntl.fcntl(reader.stdout, fcntl.F_SETPIPE_SZ, _AHEAD_BYTES)
            try:
                yield from self._batches(reader.stdout)
            finally:
                reader.kill()  # the reader may have stopped

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
        raise Refused(f"{self._text.path}: the decoding process was killed: probably out of memory")


def write_events(path: str) -> None:
    """The other end: decode a file and write its batches, then its problems, to standard output."""
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
