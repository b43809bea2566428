"""The stacks of a process as lines of text: main thread first, threads that are in the same place told once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.profile.dump import ThreadStack

_NAMED = 6  # threads in the same place that are named
_ROWS = 40  # calls of a stack that are printed


def grouped(threads: Sequence[ThreadStack]) -> list[list[ThreadStack]]:
    """Threads that are in the same place together; the main one and the one that runs Python are alone."""
    groups: dict[object, list[ThreadStack]] = {}
    for thread in threads:
        alone = thread.main or thread.gil or None
        groups.setdefault((alone and thread.tid, thread.calls, thread.doing), []).append(thread)
    return list(groups.values())


def lines(threads: Sequence[ThreadStack], *, most: int = _ROWS) -> Iterator[str]:
    """A head for each group of threads, below it the calls, the innermost first; `>` stands before the user's own."""
    for group in grouped(threads):
        first = group[0]
        yield f"  {_named(group)}: {first.doing if first.calls else 'no Python in it'}"
        for call in first.calls[:most]:
            yield f"    {'>' if call.own else ' '} {call.text}"
        left = len(first.calls) - most + first.cut if len(first.calls) > most else first.cut
        if left:
            yield f"      … {left} more calls further out"


def _named(group: Sequence[ThreadStack]) -> str:
    if len(group) == 1:
        thread = group[0]
        name = thread.name or "unnamed"
        return f"{name} {thread.tid}" if thread.tid else name
    names = [thread.name or "unnamed" for thread in group[:_NAMED]]
    rest = f" and {len(group) - _NAMED} more" if len(group) > _NAMED else ""
    return f"{len(group)} threads in the same place ({', '.join(names)}{rest})"
