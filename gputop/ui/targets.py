"""What a command acts on: one process, a job, or several that are tagged or shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gputop.actions.handles import Handles, Scope
from gputop.actions.target import Rights
from gputop.model import Frame, Process

SHOWN = "shown"  # of a job, those that are neither filtered away nor of another user


class Others(NamedTuple):
    """Processes that are meant instead of one process or a whole job, and what a dialog calls them."""

    processes: Sequence[Process] = ()
    called: str = "tagged"


NO_OTHERS = Others()


class CommandTarget(NamedTuple):
    """A process as it is in a frame, how far the command reaches from it, and the others that are meant instead."""

    frame: Frame
    process: Process
    scope: Scope = Scope.PROCESS
    others: Others = NO_OTHERS

    def handles(self, rights: Rights) -> Handles:
        """Hold the processes open, so that no other one can take their pids; close it afterwards."""
        handles = Handles(self.frame, self.process, rights, self.others.processes)
        title = f"the {len(self.others.processes)} {self.others.called}"
        handles.reaches = tuple(
            replace(reach, title=title) if reach.scope is Scope.TAGGED else reach for reach in handles.reaches
        )
        return handles
