"""What PyTorch's flight recorder of one rank contains: its last collectives, their state, and the lines that call them.

The dump of a recorder is a dict (torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.x), as a pickle or as JSON.
It comes from another program: everything in it is checked, limited and sanitized.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.code import is_own
from gputop.safe.files import Refused
from gputop.safe.plain_pickle import plain
from gputop.safe.text import clean

State = Literal["scheduled", "started", "completed"]

EVERYONE = "default_pg"  # description of the group of all ranks
MOST_RANKS = 100_000  # numbers of a group that are read
MOST_OPERATIONS = 50_000  # read of a recorder, the newest
_MOST_GROUPS = 4096
_MOST_TENSORS, _MOST_DIMENSIONS, _MOST_FRAMES = 64, 16, 128
_MOST_NUMBER = 1 << 62
_LONGEST = 60  # characters of a name
_LONGEST_PATH = 4096
_FEWER = "record with a smaller TORCH_FR_BUFFER_SIZE"
_AGAIN = "dump it again"
# c10::toString(ScalarType) to the name in Python
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8",
    "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool",
}  # fmt: skip
# the backends that record when a collective starts and ends on a GPU; of others only its process group knows
_TIMED = ("nccl", "rccl", "ncclx", "rcclx", "mccl", "xccl", "hccl")


class TensorShape(NamedTuple):
    """Type and sizes of a tensor."""

    dtype: str
    sizes: tuple[int, ...]

    @property
    def text(self) -> str:
        """`float32 [4096, 1024]`."""
        return f"{self.dtype} [{', '.join(map(str, self.sizes))}]"

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.sizes:
            count *= size
        return count


class GroupKey(NamedTuple):
    """Identifies a process group across ranks. `ranks` is empty if the recorder does not know them, as gloo's."""

    backend: str
    name: str
    ranks: tuple[int, ...]


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One collective as a rank recorded it. `number`: its sequence number in the group."""

    name: str
    number: int
    state: State
    inputs: tuple[TensorShape, ...] = ()
    outputs: tuple[TensorShape, ...] = ()
    place: str = ""  # the line of the user's code that called it, as in train.py:88; empty if unknown

    @property
    def called(self) -> str:
        """`all_reduce #4711`."""
        return f"{self.name} #{self.number}"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The collectives of one rank in one process group, by number; 0: none yet.

    `sent`: point-to-point operations that have not completed.
    """

    key: GroupKey
    description: str
    operations: Mapping[int, tuple[Operation, ...]]
    entered: int
    completed: int
    sent: tuple[Operation, ...] = ()

    @property
    def everyone(self) -> bool:
        """Whether it is the group of all ranks."""
        return self.description == EVERYONE

    @property
    def waits_in(self) -> int | None:
        """Number of the first collective that was entered and has not completed."""
        if self.entered <= self.completed:
            return None
        open_ = (number for number, some in self.operations.items() if any(one.state != "completed" for one in some))
        return min((number for number in open_ if number > self.completed), default=self.completed + 1)

    def last(self, number: int | None = None) -> Operation | None:
        """The last recorded operation with this number, by default with that of the last one entered."""
        some = self.operations.get(self.entered if number is None else number, ())
        return some[-1] if some else None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecord:
    """The content of one rank's recorder."""

    groups: Mapping[GroupKey, GroupRecord]
    version: str
    library: str = ""  # version of NCCL
    cut: int = 0  # older operations that were not read

    @property
    def operations(self) -> int:
        """Number of collectives in it."""
        return sum(len(some) for group in self.groups.values() for some in group.operations.values())


def is_dump(found: Any) -> bool:
    """Whether a value is the dump of a flight recorder."""
    return isinstance(found, dict) and {"version", "pg_config"} <= found.keys() and "segments" not in found


def from_pickle(data: bytes) -> FlightRecord:
    """The record in a pickled dump, read without unpickling; Refused if it is none."""
    return read(value_of(data))


def value_of(data: bytes) -> Any:
    """The value of a pickled dump; Refused if it contains more than plain values, or is damaged."""
    return plain(data, again=_AGAIN, fewer=_FEWER)


def from_json(data: bytes) -> FlightRecord:
    """The record in a dump as JSON; Refused if it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Refused("not JSON, or truncated") from None
    return read(found)


def read(found: Any) -> FlightRecord:
    """The record in the value of a dump; Refused if it is none."""
    if not is_dump(found):
        raise Refused("not a dump of PyTorch's flight recorder")
    version = found["version"]
    if not isinstance(version, str) or not re.match(r"\d{1,3}\.\d{1,3}", version, re.ASCII):
        raise Refused("a dump of PyTorch's flight recorder without a version")
    entries = found.get("entries")
    entries = entries if isinstance(entries, list) else []
    groups = _Groups(found)
    for entry in entries[-MOST_OPERATIONS:]:
        if isinstance(entry, dict):
            groups.add(entry)
    return FlightRecord(
        groups=groups.records(),
        version=clean(version, _LONGEST),
        library=_word(found, "comm_lib_version") or _word(found, "nccl_version"),
        cut=max(0, len(entries) - MOST_OPERATIONS),
    )


class _Groups:
    """Collects the operations of each process group of a dump."""

    def __init__(self, found: Mapping[Any, Any]) -> None:
        self._ranks = dict(_members(found.get("pg_config")))
        self._status = dict(_status(found.get("pg_status")))
        self._seen: dict[GroupKey, _Group] = {}
        self._frames: dict[int, tuple[str, bool]] = {}

    def add(self, entry: Mapping[Any, Any]) -> None:
        """Take in one entry."""
        backend, _, name = _word(entry, "profiling_name").partition(":")
        group = entry.get("process_group")
        if not name or not isinstance(group, (tuple, list)) or len(group) != 2:
            return
        title, description = (clean(part, _LONGEST) if isinstance(part, str) else "" for part in group)
        key = GroupKey(backend, title, self._ranks.get(title, ()))
        if key not in self._seen and len(self._seen) >= _MOST_GROUPS:
            return
        seen = self._seen.setdefault(key, _Group(key, description, self._status.get(_whole(entry, "pg_id") or 0)))
        seen.add(entry, name, self._place(entry.get("frames")))

    def records(self) -> dict[GroupKey, GroupRecord]:
        """Each group with its operations."""
        return {key: group.record() for key, group in self._seen.items()}

    def _place(self, frames: Any) -> str:
        """The innermost line of the user's own code; else the innermost of any Python file."""
        if not isinstance(frames, list):
            return ""
        called = ""
        for frame in frames[:_MOST_FRAMES]:
            if not isinstance(frame, dict):
                continue
            known = self._frames.get(id(frame))
            if known is None:  # the dump keeps them alive
                known = self._frames[id(frame)] = _line(frame)
            text, own = known
            if own:
                return text
            called = called or text
        return called


class _Group:
    """Collects the operations of one process group."""

    def __init__(self, key: GroupKey, description: str, status: tuple[int, int] | None) -> None:
        self._key, self._description, self._status = key, description, status
        self._operations: dict[int, list[Operation]] = {}
        self._sent: list[Operation] = []
        self._retired = 0  # the last one that its group has done with
        self._peers = False  # there are point-to-point operations

    def add(self, entry: Mapping[Any, Any], name: str, place: str) -> None:
        """Take in one entry."""
        peers = entry.get("is_p2p") is True
        number = _whole(entry, "p2p_seq_id" if peers else "collective_seq_id") or _whole(entry, "seq_id")
        state = entry.get("state")
        if number is None or state not in ("scheduled", "started", "completed"):
            return
        done = entry.get("retired") is True and self._key.backend not in _TIMED
        one = Operation(
            name=clean(name, _LONGEST),
            number=number,
            state="completed" if done else state,
            inputs=_tensors(entry, "input"),
            outputs=_tensors(entry, "output"),
            place=place,
        )
        self._peers |= peers
        if not peers:
            self._operations.setdefault(number, []).append(one)
        elif one.state != "completed":
            self._sent.append(one)

    def record(self) -> GroupRecord:
        """The group. Its status counts point-to-point operations, too, so it is used only without these."""
        entered = max(self._operations, default=0)
        done = (number for number, some in self._operations.items() if all(one.state == "completed" for one in some))
        completed = max(done, default=0)
        if self._status is not None and not self._peers:
            entered, completed = max(entered, self._status[0]), max(completed, self._status[1])
        return GroupRecord(
            key=self._key,
            description=self._description,
            operations={number: tuple(some) for number, some in self._operations.items()},
            entered=entered,
            completed=min(entered, completed),
            sent=tuple(self._sent),
        )


def _members(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and ranks of the process groups; ranks are text, as in "[0, 1, 2]"."""
    for title, about in _items(config):
        ranks = about.get("ranks") if isinstance(about, dict) else None
        if isinstance(title, str) and isinstance(ranks, str):
            numbers = re.findall(r"\d{1,9}", ranks[: 10 * MOST_RANKS])[:MOST_RANKS]
            yield clean(title, _LONGEST), tuple(sorted(map(int, numbers)))


def _status(status: Any) -> Iterator[tuple[int, tuple[int, int]]]:
    """By number of a process group: its last collectives enqueued and completed; numbers may be text."""
    for title, about in _items(status):
        if isinstance(title, str) and title.isdecimal() and len(title) < 10 and isinstance(about, dict):
            enqueued, completed = (_whole(about, f"last_{what}_collective") for what in ("enqueued", "completed"))
            yield int(title), (enqueued or 0, completed or 0)


def _items(found: Any) -> Iterable[tuple[Any, Any]]:
    return list(found.items())[:_MOST_GROUPS] if isinstance(found, dict) else ()


def _whole(entry: Mapping[Any, Any], name: str) -> int | None:
    """A number, also as text; None if it is none."""
    value = entry.get(name)
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdecimal():
        value = int(value)
    return value if type(value) is int and 0 <= value < _MOST_NUMBER else None


def _word(entry: Mapping[Any, Any], name: str) -> str:
    value = entry.get(name)
    return clean(value, _LONGEST) if isinstance(value, str) else ""


def _tensors(entry: Mapping[Any, Any], which: str) -> tuple[TensorShape, ...]:
    sizes, dtypes = _list(entry, f"{which}_sizes"), _list(entry, f"{which}_dtypes")
    found = []
    for place, size in enumerate(sizes[:_MOST_TENSORS]):
        dtype = dtypes[place] if place < len(dtypes) else None
        known = _DTYPES.get(dtype, clean(dtype, _LONGEST)) if isinstance(dtype, str) else "?"
        numbers = size[:_MOST_DIMENSIONS] if isinstance(size, (list, tuple)) else ()
        found.append(
            TensorShape(known, tuple(one if type(one) is int and 0 <= one < _MOST_NUMBER else 0 for one in numbers))
        )
    return tuple(found)


def _list(entry: Mapping[Any, Any], name: str) -> Sequence[Any]:
    value = entry.get(name)
    return value if isinstance(value, (list, tuple)) else ()


def _line(frame: Mapping[Any, Any]) -> tuple[str, bool]:
    """`train.py:88`, and whether that is the user's own code; empty if it is not of a Python file."""
    file, line = frame.get("filename"), _whole(frame, "line")
    if not isinstance(file, str) or line is None or not (file.endswith(".py") or file.startswith("<")):
        return "", False
    return clean(f"{file[-_LONGEST:].rpartition('/')[2]}:{line}", _LONGEST), is_own(file[:_LONGEST_PATH])
