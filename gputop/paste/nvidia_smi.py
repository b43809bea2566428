"""Parse `nvidia-smi -q` into sections: each GPU at one moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gputop.frozen_dataclass import frozen_dataclass
from gputop.paste.pasted import lines, number
from gputop.safe.text import clean

_LOG = re.compile(r"^=+NVSMI LOG=+\s*$|^\s*Attached GPUs\s+: \d", re.MULTILINE)
_SECTION = re.compile(
    r"^\s*(?:Clocks (?:Event|Throttle) Reasons|FB Memory Usage|GPU Power Readings|Power Readings)\s*$", re.M
)
_GPU = re.compile(r"^(?:GPU|gpu) ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_WHOLE = re.compile(r"Product Name\s+: ", re.IGNORECASE)  # present unless specific sections were requested
_LAST = re.compile(r"(?:Compute )?Processes\b|Process ID\b", re.IGNORECASE)
_PAIR = re.compile(r"^(\s*)(\S[^:]{0,80}?)\s*: ?(.*)$")
_HEADER = re.compile(r"^(\s*)(\S[^:]{0,80}?)\s*$")
_MOST_GPUS = 64
_MOST_VALUES = 4000  # of one GPU
_UNKNOWN = ("N/A", "[N/A]", "Unknown Error", "Not Supported", "[Not Supported]", "")


@frozen_dataclass(frozen=True, slots=True)
class SmiProcess:
    """A process with memory on a GPU."""

    pid: int
    name: str
    used_bytes: float | None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class SmiGpu:
    """One GPU: its values by section path, outermost first."""

    bus: str
    values: tuple[tuple[tuple[str, ...], str], ...]
    programs: tuple[SmiProcess, ...]

    def text(self, *path: str) -> str | None:
        """The first value at the end of this path; None if missing or unknown to the driver."""
        wanted = tuple(part.lower() for part in path)
        for at, value in self.values:
            if len(at) >= len(wanted) and at[-1] == wanted[-1] and _within(at, wanted):
                return None if value in _UNKNOWN else value
        return None

    def number(self, *path: str) -> float | None:
        """The same as a number, without its unit."""
        found = self.text(*path)
        return None if found is None else number(found)

    def first(self, *paths: tuple[str, ...]) -> float | None:
        """The first known one of several paths: names vary with the driver."""
        return next((value for path in paths if (value := self.number(*path)) is not None), None)

    def bytes(self, *path: str) -> float | None:
        """A size in MiB, converted to bytes."""
        found = self.number(*path)
        return None if found is None else found * 2**20

    def says(self, *path: str) -> bool | None:
        """Active, Enabled or Yes; None if unknown."""
        found = self.text(*path)
        return None if found is None else found in ("Active", "Enabled", "Yes")

    def section(self, name: str) -> Iterator[tuple[str, str]]:
        """The values of a section, without subsections."""
        for at, value in self.values:
            if len(at) >= 2 and at[-2] == name.lower():
                yield at[-1], value


def _within(at: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether the path contains the sections in this order."""
    rest = iter(at)
    return all(part in rest for part in wanted)


def looks_like(text: str) -> bool:
    """Whether it is output of `nvidia-smi -q`, complete or sections of it."""
    return _LOG.search(text) is not None or (_SECTION.search(text) is not None and " : " in text)


def cut(text: str) -> bool:
    """Whether complete output ends before its last section, which lists the processes of a GPU."""
    rows = [line.strip() for line in lines(text)]
    last = max((at for at, line in enumerate(rows) if _GPU.match(line)), default=0)
    within = rows[last:]
    return any(_WHOLE.match(line) for line in within) and not any(_LAST.match(line) for line in within)


def without_end(text: str) -> str:
    """Truncated text without its last line, which may be incomplete."""
    return text if text.endswith("\n") else text[: text.rfind("\n") + 1]


def parse(text: str) -> tuple[dict[str, str], tuple[SmiGpu, ...]]:
    """The header of the output, and its GPUs; sections without a GPU's name belong to one GPU."""
    head: dict[str, str] = {}
    cards: list[tuple[str, list[str]]] = []
    for line in lines(text):
        if found := _GPU.match(line.strip()):
            if len(cards) >= _MOST_GPUS:
                break
            cards.append((found[1], []))
        elif cards:
            cards[-1][1].append(line)
        elif (pair := _PAIR.match(line)) and not pair[1] and pair[2] in ("Timestamp", "Driver Version", "CUDA Version"):
            head[pair[2]] = clean(pair[3], 80)
    if not cards:
        cards = [("", lines(text))]
    return head, tuple(_card(bus, body[:_MOST_VALUES]) for bus, body in cards)


def _card(bus: str, body: Sequence[str]) -> SmiGpu:
    values: list[tuple[tuple[str, ...], str]] = []
    stack: list[tuple[int, str]] = []
    for line in body:
        pair = _PAIR.match(line)
        header = None if pair else _HEADER.match(line)
        found = pair or header
        if found is None:
            continue
        indent = len(found[1].expandtabs(4))
        # text pasted without indentation still has values below their section
        flat = indent == 0 and pair is not None
        while stack and stack[-1][0] >= indent and not flat:
            stack.pop()
        if header:
            stack.append((indent, header[2].lower()))
        elif pair:
            path = tuple(name for _, name in stack)
            values.append(((*path, pair[2].lower()), clean(pair[3].strip(), 200)))
    return SmiGpu(bus=bus, values=tuple(values), programs=tuple(_programs(values)))


def _programs(values: Sequence[tuple[tuple[str, ...], str]]) -> Iterator[SmiProcess]:
    pid, name = None, ""
    for at, value in values:
        if at[-1] == "process id":
            pid, name = number(value), ""
        elif at[-1] == "name" and pid is not None:
            name = value
        elif at[-1] == "used gpu memory" and pid is not None:
            used = number(value)
            yield SmiProcess(int(pid), name, None if used is None else used * 2**20)
            pid = None
