"""What was taken of a process before: to open again, and what it cost then."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.actions.pyspy.cost import remembered
from gputop.actions.target import command
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Process
from gputop.profile import store
from gputop.profile.store import StoredProfile
from gputop.safe.files import Refused, homely


@frozen_dataclass(frozen=True, slots=True)
class Past:
    """Those of the process itself and of the same command line, the newest first, and where all of them lie."""

    own: tuple[StoredProfile, ...] = ()
    others: tuple[StoredProfile, ...] = ()
    place: str = ""  # as a person writes it; empty where nothing can be kept

    @property
    def older(self) -> tuple[StoredProfile, ...]:
        """All of them, its own first."""
        return (*self.own, *self.others)

    def cost(self, *, trace: bool) -> str:
        """What the newest of its kind cost this very process; empty where that was not measured."""
        return next(_costs(self.own, trace), "")


def past(process: Process) -> Past:
    """Look for them: reads a file each, so not on the screen's time."""
    try:
        place = homely(store.place())
        own = store.history(process.pid, process.started_ticks)
        alike = store.alike(command(process))
    except Refused:
        return Past()
    names = {each.name for each in own}
    return Past(tuple(own), tuple(each for each in alike if each.name not in names), place)


def _costs(own: tuple[StoredProfile, ...], trace: bool) -> Iterator[str]:
    for each in own:
        cost, stop_ms = remembered(each.meta.get("cost")), each.meta.get("stop_ms")
        if not trace and cost is not None:
            yield cost.text
        elif trace and isinstance(stop_ms, (int, float)) and 0 < stop_ms < 1e6:
            yield f"it stood still for {stop_ms:.0f} ms at the end"
