"""What a flame graph and its tables are made of: time by call path, of one thread or of several. Made aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.stacks import Function, Node, Profile
from gputop.profile.training_parts import Kind, kind, loaders, main

MOST = 24  # threads that can be chosen


@frozen_dataclass(frozen=True)
class Sampled:
    """One choice: its title, its call paths, what its functions are, in samples or microseconds."""

    title: str
    root: Node
    top: Sequence[Function]
    kind: Callable[[str], Kind]
    told: Callable[[float], str]  # an amount in words: 38 samples, 12.4 ms
    unit: str  # of a column: SAMPLES, MS
    files: dict[str, str]
    lines: dict[str, str]
    number: Callable[[float], str]  # an amount in that column

    @cached_property
    def own(self) -> dict[str, float]:
        """The own part of each function."""
        return {each.name: each.self_count for each in self.top}


class Choice:
    """Which of them is looked at, in every tab."""

    def __init__(self, choices: Sequence[Sampled]) -> None:
        self.choices = choices
        self.at = 0

    @property
    def chosen(self) -> Sampled:
        """The one."""
        return self.choices[self.at]

    def turn(self, step: int = 1) -> str:
        """The next one; its title."""
        self.at = (self.at + step) % len(self.choices)
        return self.chosen.title


def of_profile(profile: Profile) -> list[Sampled]:
    """The main thread, its other processes, then each thread with samples, the busiest first; then all of it."""
    parts: list[tuple[str, Profile]] = []
    first, others = main(profile), loaders(profile)
    if first is not profile:
        parts.append(("main thread", first))
    if others.stacks:
        parts.append(("its loaders", others))
    parts += _threads(profile)
    if len(parts) != 1:
        parts.append(("all threads" if parts else "all samples", profile))
    return [_sampled(title, part) for title, part in parts if part.stacks]


def _threads(profile: Profile) -> Iterator[tuple[str, Profile]]:
    counts: dict[str, float] = {}
    for stack, count in profile.stacks.items():
        counts[stack[0]] = counts.get(stack[0], 0.0) + count
    subject = profile.subject
    ranked = sorted((name for name in profile.threads if name in counts), key=lambda name: (-counts[name], name))
    for name in ranked[:MOST]:
        thread = profile.threads[name]
        if not (thread.main and thread.pid in (None, subject)):
            yield name, profile.only(lambda each, thread=thread: each == thread)  # type: ignore[misc]


def _sampled(title: str, profile: Profile) -> Sampled:
    found = profile.by_function()
    found.lines = profile.lines
    kinds: dict[str, Kind] = {}

    def known(name: str) -> Kind:
        what = kinds.get(name)
        if what is None:
            what = kinds[name] = kind(name, found.files)
        return what

    return Sampled(
        title=title, root=found.tree(), top=found.top(), kind=known, told=_samples, unit="SAMPLES",
        files=found.files, lines=profile.lines, number=lambda count: f"{count:.0f}",
    )  # fmt: skip


def _samples(count: float) -> str:
    return f"{count:.0f} sample{'s' * (round(count) != 1)}"
