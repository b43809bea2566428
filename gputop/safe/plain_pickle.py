"""Read a pickle of dicts, lists, tuples, strings and numbers only, without the module `pickle`.

No class is looked up and nothing is called: an opcode that would do so ends reading. Only strings and numbers are
hashed as keys, and declared sizes are not trusted: memory use is proportional to the file.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any

from gputop.safe.files import Refused
from gputop.safe.text import clean

MOST_OPERATIONS = 60_000_000
MOST_CONTAINERS = 4_000_000
_LONGEST_INTEGER = 16  # bytes
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}


class PickleReader:
    """The pickle machine with the harmless half of its instructions."""

    def __init__(self, data: bytes, again: str, fewer: str) -> None:
        """`again` and `fewer`: what to do about a damaged file, and about one with too many values."""
        self.data, self.again, self.fewer = data, again, fewer
        self.at = 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def run(self) -> Any:
        """The value; Refused says in one line why it is not read."""
        data, operations = self.data, _OPERATIONS
        try:
            for _ in range(MOST_OPERATIONS):
                code = data[self.at]
                self.at += 1
                if code == _STOP:
                    return self.stack[-1]
                operations[code](self)
        except KeyError:
            raise Refused(self._forbidden()) from None
        except (IndexError, struct.error, ValueError, TypeError):
            raise Refused(f"truncated or damaged: {self.again}") from None
        raise Refused(f"too many values: {self.fewer}")

    def _forbidden(self) -> str:
        name = _NAMES.get(self.data[self.at - 1], "an unknown instruction")
        words = [item for item in self.stack[-2:] if isinstance(item, str)]
        which = f" ({clean('.'.join(words), 80)})" if name == "STACK_GLOBAL" and words else ""
        return f"contains Python objects, {name}{which}: only plain dicts, lists and numbers are read; no code was run"

    def take(self, count: int) -> bytes:
        """The next bytes; ValueError if there are too few."""
        found = self.data[self.at : self.at + count]
        if len(found) < count:
            raise ValueError("cut")
        self.at += count
        return found

    def whole(self, size: int) -> int:
        """An unsigned number of this many bytes."""
        return int.from_bytes(self.take(size), "little")

    def made(self, container: Any) -> None:
        """Push a new container, within the limit on their number."""
        self.containers += 1
        if self.containers > MOST_CONTAINERS:
            raise Refused(f"too many dicts and lists: {self.fewer}")
        self.stack.append(container)

    def since_mark(self) -> list[Any]:
        """Pop everything pushed since the last mark."""
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def last(self, count: int) -> list[Any]:
        """Pop the last values."""
        if len(self.stack) < count:
            raise ValueError("damaged")
        found = self.stack[-count:]
        del self.stack[-count:]
        return found


def plain(data: bytes, *, again: str, fewer: str) -> Any:
    """The value of a pickle of plain values; Refused if it contains others, or is damaged.

    `again` and `fewer` say what to do about a damaged file, and about one with too many values.
    """
    return PickleReader(data, again, fewer).run()


def _text(size: int) -> Callable[[PickleReader], None]:
    def push(reader: PickleReader) -> None:
        reader.stack.append(reader.take(reader.whole(size)).decode("utf-8", "replace"))

    return push


def _raw(size: int) -> Callable[[PickleReader], None]:
    return lambda reader: reader.stack.append(reader.take(reader.whole(size)))


def _unsigned(size: int) -> Callable[[PickleReader], None]:
    return lambda reader: reader.stack.append(reader.whole(size))


def _value(value: object) -> Callable[[PickleReader], None]:
    return lambda reader: reader.stack.append(value)


def _skip(size: int) -> Callable[[PickleReader], None]:
    def skip(reader: PickleReader) -> None:
        reader.take(size)

    return skip


def _long(reader: PickleReader) -> None:
    size = reader.whole(1)
    if size > _LONGEST_INTEGER:
        raise ValueError("no such number")
    reader.stack.append(int.from_bytes(reader.take(size), "little", signed=True))


def _put(size: int) -> Callable[[PickleReader], None]:
    def put(reader: PickleReader) -> None:
        reader.memo[reader.whole(size)] = reader.stack[-1]

    return put


def _get(size: int) -> Callable[[PickleReader], None]:
    def get(reader: PickleReader) -> None:
        number = reader.whole(size)
        if number not in reader.memo:
            raise ValueError("damaged")
        reader.stack.append(reader.memo[number])

    return get


def _memoize(reader: PickleReader) -> None:
    reader.memo[len(reader.memo)] = reader.stack[-1]


def _mark(reader: PickleReader) -> None:
    reader.marks.append(len(reader.stack))


def _extend(reader: PickleReader, values: list[Any]) -> None:
    found = reader.stack[-1]
    if type(found) is not list:
        raise ValueError("damaged")
    found.extend(values)


def _set(reader: PickleReader, values: list[Any]) -> None:
    found = reader.stack[-1]
    if type(found) is not dict or len(values) % 2:
        raise ValueError("damaged")
    for key, value in zip(values[::2], values[1::2], strict=True):
        if type(key) is not str and type(key) is not int:
            raise ValueError("a strange key")
        found[key] = value


_STOP = ord(".")
_OPERATIONS: dict[int, Callable[[PickleReader], None]] = {
    0x80: _skip(1),  # PROTO
    0x95: _skip(8),  # FRAME
    ord("("): _mark,
    ord("}"): lambda reader: reader.made({}),
    ord("]"): lambda reader: reader.made([]),
    ord(")"): lambda reader: reader.made(()),
    ord("t"): lambda reader: reader.made(tuple(reader.since_mark())),
    0x85: lambda reader: reader.made(tuple(reader.last(1))),
    0x86: lambda reader: reader.made(tuple(reader.last(2))),
    0x87: lambda reader: reader.made(tuple(reader.last(3))),
    ord("a"): lambda reader: _extend(reader, reader.last(1)),
    ord("e"): lambda reader: _extend(reader, reader.since_mark()),
    ord("s"): lambda reader: _set(reader, reader.last(2)),
    ord("u"): lambda reader: _set(reader, reader.since_mark()),
    ord("X"): _text(4),
    0x8C: _text(1),
    0x8D: _text(8),
    ord("B"): _raw(4),
    ord("C"): _raw(1),
    ord("J"): lambda reader: reader.stack.append(int.from_bytes(reader.take(4), "little", signed=True)),
    ord("K"): _unsigned(1),
    ord("M"): _unsigned(2),
    0x8A: _long,
    ord("G"): lambda reader: reader.stack.append(struct.unpack(">d", reader.take(8))[0]),
    ord("N"): _value(None),
    0x88: _value(True),
    0x89: _value(False),
    0x94: _memoize,
    ord("q"): _put(1),
    ord("r"): _put(4),
    ord("h"): _get(1),
    ord("j"): _get(4),
}
