"""Measured fixes: what a finding advised, and the effect when the same script ran again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gputop.model import Identity
    from gputop.monitor import Monitor, Update
    from gputop.proven.fixes import Fix
    from gputop.proven.watch import FixStorage, Watch


def follow(monitor: Monitor, *, remember: bool, readonly: bool) -> Proofs | None:
    """A tracker for the findings of a monitor; None if disabled, or if its jobs are not live on this machine."""
    if not remember or monitor.source.elsewhere:
        return None
    proofs = Proofs(writes=not readonly)
    monitor.sinks = (*monitor.sinks, proofs.take)
    return proofs


class FixText(NamedTuple):
    """The effect of a fix as text."""

    whole: str
    brief: str  # starts with the gain: for a line that may be truncated
    faster: bool = False  # beyond the noise


class Proofs:
    """A sink of the monitor that tracks findings and fixes. Dependencies are loaded with the first job.

    `writes`: it may store files. Without it, runs are still compared with stored ones.
    """

    def __init__(self, *, writes: bool, memory: Callable[[], FixStorage] | None = None) -> None:
        self._writes, self._memory = writes, memory
        self._watch: Watch | None = None
        self.problem = ""

    def take(self, update: Update) -> None:
        """Take in an update. An internal error ends the comparison, never the monitor."""
        if self.problem or not update.jobs:
            return
        try:
            if self._watch is None:
                self._watch = self._made()
            self._watch.take(update)
        except Exception as error:
            self.problem = f"gains of fixes are not measured: {type(error).__name__}: {error}; please report it"

    def _made(self) -> Watch:
        from gputop.proven.store import BackgroundStore, FixStore
        from gputop.proven.watch import Watch

        return Watch(self._memory() if self._memory else BackgroundStore(FixStore(writes=self._writes)))

    @property
    def running(self) -> tuple[tuple[Identity, Fix], ...]:
        """Fixes measured by running jobs, newest first."""
        return self._watch.proven if self._watch else ()

    @property
    def lines(self) -> tuple[FixText, ...]:
        """The same as text; the problem instead, if there is one."""
        if self.problem:
            return (FixText(self.problem, self.problem),)
        if not self.running:
            return ()
        from gputop.proven.report import brief, is_faster, line

        return tuple(FixText(line(fix), brief(fix), is_faster(fix)) for _, fix in self.running)

    def finish(self) -> None:
        """Store the final state, and wait a moment until it is written."""
        if self._watch:
            self._watch.finish()

    @property
    def pending(self) -> str:
        """The script of a run still being compared with an earlier one; empty if there is none."""
        return self._watch.pending if self._watch and not self.problem else ""
