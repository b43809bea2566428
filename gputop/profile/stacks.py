"""A profile as samples by stack: tree, function ranking, comparison, collapsed stacks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.code import is_own

MOST_STACKS = 500_000
MOST_DEPTH = 500


_LINE = re.compile(r":\d+\)$")


@frozen_dataclass(frozen=True, slots=True)
class SampledThread:
    """A sampled thread."""

    pid: int | None  # if several processes were sampled, or if known anyway
    tid: str
    name: str

    @property
    def main(self) -> bool:
        """Whether it is the main thread of its process."""
        return "MainThread" in self.name or (self.pid is not None and self.tid == str(self.pid))


@frozen_dataclass(frozen=True, slots=True)
class Function:
    """A frame at any depth: samples with it innermost, and samples with it anywhere."""

    name: str
    self_count: float
    total_count: float


class StackNode:
    """One frame below its callers."""

    __slots__ = ("children", "count", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0.0  # samples in it or its callees
        self.children: dict[str, StackNode] = {}


class Profile:
    """Samples by stack. Frames are sanitized text, outermost first.

    `threads` are the identified ones: their stacks begin with the name given here. `files` has the full path of a
    frame's file if known, `lines` the text of its line.
    """

    def __init__(self, stacks: Iterable[tuple[tuple[str, ...], float]] = ()) -> None:
        self.stacks: dict[tuple[str, ...], float] = {}
        self.notes: list[str] = []
        self.problems: list[str] = []  # parts of the file that were not read
        self.threads: dict[str, SampledThread] = {}
        self.files: dict[str, str] = {}
        self.lines: dict[str, str] = {}
        self.pid: int | None = None  # the main process, if known
        for stack, count in stacks:
            self.add(stack, count)

    def add(self, stack: tuple[str, ...], count: float) -> None:
        """Add samples of one stack; beyond the limits it is truncated, and a note says so."""
        if not 0 < count < 1e15:
            return
        if stack not in self.stacks and len(self.stacks) >= MOST_STACKS:
            self._note("too many stacks: only the first are read")
            return
        if len(stack) > MOST_DEPTH:
            self._note(f"stacks deeper than {MOST_DEPTH} frames are truncated")
        stack = stack[:MOST_DEPTH]
        self.stacks[stack] = self.stacks.get(stack, 0.0) + count

    @property
    def total(self) -> float:
        """Number of samples."""
        return sum(self.stacks.values(), 0.0)

    @property
    def subject(self) -> int | None:
        """The main process: the one specified, else the oldest; None if processes are not identified."""
        known = {thread.pid for thread in self.threads.values() if thread.pid is not None}
        return self.pid if self.pid in known else min(known, default=None)

    def only(self, wanted: Callable[[SampledThread], bool]) -> Profile:
        """Stacks of the wanted threads, without their names."""
        names = {name for name, thread in self.threads.items() if wanted(thread)}
        found = Profile((stack[1:], count) for stack, count in self.stacks.items() if stack[0] in names and stack[1:])
        found.files, found.lines = self.files, self.lines
        return found

    def by_function(self) -> Profile:
        """The same without line numbers."""
        found = Profile((tuple(_LINE.sub(")", name) for name in stack), count) for stack, count in self.stacks.items())
        found.files = {_LINE.sub(")", name): file for name, file in self.files.items()}
        found.threads, found.notes, found.problems = self.threads, self.notes, self.problems
        return found

    def own_code(self) -> Profile:
        """Stacks up to the innermost frame of the user's own code; without samples outside it."""
        mine = {name for name, file in self.files.items() if is_own(file)}
        found = Profile()
        for stack, count in self.stacks.items():
            last = next((place for place in range(len(stack) - 1, -1, -1) if stack[place] in mine), None)
            if last is not None:
                found.add(stack[: last + 1], count)
        found.files, found.lines = self.files, self.lines
        return found

    def top(self) -> list[Function]:
        """Functions by own samples; a recursive one counts once per stack."""
        own, anywhere = defaultdict[str, float](float), defaultdict[str, float](float)
        for stack, count in self.stacks.items():
            own[stack[-1]] += count
            for name in set(stack):
                anywhere[name] += count
        functions = (Function(name, own.get(name, 0.0), count) for name, count in anywhere.items())
        return sorted(functions, key=lambda each: (-each.self_count, -each.total_count, each.name))

    def tree(self) -> StackNode:
        """All stacks merged by common prefixes."""
        root = StackNode("all")
        for stack, count in self.stacks.items():
            root.count += count
            node = root
            for name in stack:
                node = node.children.setdefault(name, StackNode(name))
                node.count += count
        return root

    def collapsed(self) -> str:
        """The stacks as text, one per line, in the format of flamegraph.pl and inferno."""
        lines = (
            f"{';'.join(name.replace(';', ':') for name in stack)} {max(1, round(count))}"
            for stack, count in sorted(self.stacks.items())
        )
        return "".join(f"{line}\n" for line in lines)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def diff(before: Profile, after: Profile) -> list[tuple[str, float, float]]:
    """Functions with a changed share of samples: name, before, after; the largest change first.

    Shares (0-1) are of all samples with the function anywhere: the profiles may differ in length.
    """
    old, new = (
        {each.name: each.total_count / profile.total for each in profile.by_function().top()}
        for profile in (before, after)  # an edit moves the lines below it
    )
    names = old.keys() | new.keys()
    rows = [(name, old.get(name, 0.0), new.get(name, 0.0)) for name in names]
    return sorted((row for row in rows if row[1] != row[2]), key=lambda row: (-abs(row[2] - row[1]), row[0]))
