"""Fixes that are proven: what a finding advised, and what came of it when the same script ran again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gputop.model import Identity
    from gputop.monitor import Monitor, Update
    from gputop.proven.fixes import Fix
    from gputop.proven.watch import Memory, Watch


def follow(monitor: Monitor, *, remember: bool, readonly: bool) -> Proofs | None:
    """What follows the findings of a monitor; None where that was switched off, or its jobs are not of here and now."""
    if not remember or monitor.source.elsewhere:
        return None
    proofs = Proofs(writes=not readonly)
    monitor.sinks = (*monitor.sinks, proofs.take)
    return proofs


class Told(NamedTuple):
    """What came of a finding, in words."""

    whole: str
    brief: str  # the gain first: for a line that may be cut
    faster: bool = False  # beyond the noise


class Proofs:
    """A sink of the monitor that follows findings and fixes. What it needs is loaded once there is a job.

    `writes`: it may keep files. Without, it still compares a run with what was kept before.
    """

    def __init__(self, *, writes: bool, memory: Callable[[], Memory] | None = None) -> None:
        self._writes, self._memory = writes, memory
        self._watch: Watch | None = None
        self.problem = ""

    def take(self, update: Update) -> None:
        """One more update. A mistake of ours in here ends the comparison, never the monitor."""
        if self.problem or not update.jobs:
            return
        try:
            if self._watch is None:
                self._watch = self._made()
            self._watch.take(update)
        except Exception as error:
            self.problem = f"fixes are not followed: {type(error).__name__}: {error}; please report it"

    def _made(self) -> Watch:
        from gputop.proven.store import BackgroundStore, Store
        from gputop.proven.watch import Watch

        return Watch(self._memory() if self._memory else BackgroundStore(Store(writes=self._writes)))

    @property
    def running(self) -> tuple[tuple[Identity, Fix], ...]:
        """The fixes that are proven by runs that go on, the newest first."""
        return self._watch.proven if self._watch else ()

    @property
    def lines(self) -> tuple[Told, ...]:
        """The same as a person reads it; a problem instead."""
        if self.problem:
            return (Told(self.problem, self.problem),)
        if not self.running:
            return ()
        from gputop.proven.report import brief, is_faster, line

        return tuple(Told(line(fix), brief(fix), is_faster(fix)) for _, fix in self.running)

    def finish(self) -> None:
        """Keep what stands at the end, and wait a moment until it is written."""
        if self._watch:
            self._watch.finish()

    @property
    def pending(self) -> str:
        """The script of a run that is still compared with an earlier one; empty where there is none."""
        return self._watch.pending if self._watch and not self.problem else ""
