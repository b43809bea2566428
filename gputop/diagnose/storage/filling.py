"""How soon a file system is full at the rate at which its free space falls: in steps, as checkpoints are saved."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise

from gputop.declare import record
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Mount

_KEPT_S = 900.0  # as long as what a trainer writes is kept by the second
_FREED = 0.3  # of what was taken, that was freed meanwhile: old files are deleted as new ones come
_SLOWER = 0.5  # of the rate of the first half, that the second has: less is a burst that ends
_PAUSES = 2.0  # usual distances without another drop, after which it is over

_Changes = deque[tuple[float, float]]  # when it was seen, and free bytes since then


@record(frozen=True, slots=True)
class Filling:
    """A file system whose free space falls: in how many drops, by how many bytes, over how many seconds."""

    mount: Mount
    drops: int
    taken: float
    seconds: float
    since_s: float  # mono time of the first drop
    left: float

    @property
    def per_s(self) -> float:
        """Bytes a second."""
        return self.taken / self.seconds

    @property
    def left_s(self) -> float:
        """Seconds until nothing is left."""
        return self.left / self.per_s


def follow(view: View) -> Mapping[str, _Changes]:
    """Take in how much is free on every mount at this look: when it changed, by the path of the mount."""
    notes, now_s = view.notes(view.frame.host), view.frame.mono_s
    before: Mapping[str, _Changes] = notes.get("free", {})
    after = {one.path: before.get(one.path, deque()) for one in view.frame.host.mounts if one.free_bytes is not None}
    for mount in view.frame.host.mounts:
        if mount.free_bytes is None:
            continue
        changes = after[mount.path]
        if not changes or changes[-1][1] != mount.free_bytes:
            changes.append((now_s, float(mount.free_bytes)))
        while len(changes) > 1 and changes[1][0] < now_s - _KEPT_S:
            changes.popleft()
    notes["free"] = after
    return after


def filling(view: View, trainer: Trainer, changes: Mapping[str, _Changes]) -> Filling | None:
    """The file system that this trainer fills within ten minutes, by several drops of its free space."""
    found = [one for mount in view.frame.host.mounts if (one := _falls(view, mount, changes.get(mount.path)))]
    mine = [one for one in found if _writes(view, trainer, one) >= view.limit("exhaustion.share") * one.taken]
    return min(mine, key=lambda one: one.left_s, default=None)


def _falls(view: View, mount: Mount, changes: _Changes | None) -> Filling | None:
    if changes is None or len(changes) < 2 or mount.free_bytes is None:
        return None
    steps = [(at_s, before - after) for (_, before), (at_s, after) in pairwise(changes)]
    drops = [(at_s, taken) for at_s, taken in steps if taken > 0]
    freed = -sum(taken for _, taken in steps if taken < 0)
    if len(drops) < view.limit("shm-nearly-full.least_drops") or freed >= _FREED * sum(taken for _, taken in drops):
        return None
    times = [at_s for at_s, _ in drops]
    seconds, taken = times[-1] - times[0], sum(taken for _, taken in drops[1:])
    if (
        seconds < view.limit("shm-nearly-full.drops_s")
        or view.frame.mono_s - times[-1] > _PAUSES * seconds / (len(drops) - 1) + 1
    ):
        return None
    half = times[0] + seconds / 2
    if sum(taken for at_s, taken in drops if at_s > half) < _SLOWER * taken / 2:
        return None
    one = Filling(mount, len(drops), taken, seconds, times[0], float(mount.free_bytes))
    least_s, sure = view.limit("shm-nearly-full.few_drops_left_s"), len(drops) >= view.limit("shm-nearly-full.drops")
    return one if one.left_s <= (view.limit("exhaustion.urgent_s") if sure else least_s) else None


def _writes(view: View, trainer: Trainer, one: Filling) -> float:
    """Bytes that it wrote since the first drop; in a page cache they may have waited for a while."""
    seconds = view.frame.mono_s - one.since_s + 1
    names = ("write_chars_per_s", "write_bytes_per_s")
    return max(sum(value or 0.0 for value in view.history.values(trainer.key, name, seconds)) for name in names)
