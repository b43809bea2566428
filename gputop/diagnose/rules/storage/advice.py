"""Steps against slow storage, with the paths and numbers of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from shlex import quote

from gputop import num_workers
from gputop.diagnose.cpu_budget import equal_share
from gputop.diagnose.finding import Step
from gputop.diagnose.program_kind import may_use_torch, serves
from gputop.diagnose.rules.storage import sources
from gputop.diagnose.rules.storage.sources import Drive, StorageSource
from gputop.diagnose.steps import loader_settings
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.model import Mount
from gputop.units import size

_LEAST_FREE = 20e9  # bytes: too small for a data set
_SOLID = ("nvme", "vd", "xvd", "sd")


def staged(view: View, source: StorageSource | None) -> Iterator[Step]:
    """Copy the data to a local disk with enough space."""
    room = view.cached(("room", source and source.name), partial(_room, view, source))
    if room is None:
        if source is None or not source.name.startswith("nvme"):
            yield Step(text="Copy the data to a local NVMe disk first")
        return
    below = f"{quote(source.name.rstrip('/'))}/" if isinstance(source, sources.NetworkMount) else ""
    yield Step(
        text=f"Copy the data to {room.path} first ({size(room.free_bytes)} free)",
        command=f"rsync -a {below}DATASET/ {quote(room.path.rstrip('/'))}/DATASET/",
    )


def staged_from(view: View, path: str | None) -> Iterator[Step]:
    """The same for data below a path; None if that is unknown."""
    room, below = local_room(view), f"{quote(path.rstrip('/'))}/" if path else ""
    if room is None:
        yield Step(text="Copy the data to a local NVMe disk first")
        return
    yield Step(
        text=f"Copy the data to {room} first", command=f"rsync -a {below}DATASET/ {quote(room.rstrip('/'))}/DATASET/"
    )


def local_room(view: View) -> str | None:
    """Mount point of the local file system with most free space."""
    room = view.cached(("room", None), partial(_room, view, None))
    return room.path if room else None


def _room(view: View, source: StorageSource | None) -> Mount | None:
    """The local file system with most free space that is not on the saturated disk."""
    full = source.name if isinstance(source, Drive) else None
    slow = {disk.name for disk in view.frame.host.disks if disk.rotational or disk.name == full}
    mounts = [
        mount
        for mount in view.frame.host.mounts
        if not mount.network
        and mount.path != "/"  # the exact location is up to the user
        and (mount.free_bytes or 0) >= _LEAST_FREE
        and mount.device.rpartition("/")[2].startswith(_SOLID)
        and not any(on(mount, name) for name in slow)
    ]
    return max(mounts, key=lambda mount: mount.free_bytes or 0, default=None)


def on(mount: Mount, disk: str) -> bool:
    """Whether a file system is on a disk, or on one of its partitions."""
    device = mount.device.rpartition("/")[2]
    return device == disk or (device.startswith(disk) and device[len(disk) :].lstrip("p").isdigit())


SHARDS = Step(text="Use fewer, larger files read sequentially: WebDataset, Arrow, TFRecord, LMDB")
SMALLER = Step(text="Read less: compressed images and text, only the columns in use")


def more_loaders(view: View, trainer: Trainer) -> Iterator[Step]:
    """Waiting loaders need no CPU: more of them keep an unsaturated device busy. A server has no such limit."""
    if serves(trainer) or not may_use_torch(trainer):
        return
    wanted = num_workers.for_slow_storage(trainer.loaders, equal_share(view, trainer))
    if wanted > trainer.loaders:
        yield Step(
            text="Raise num_workers while READ/s still rises: workers that wait for storage need no CPU",
            command=f"DataLoader(..., num_workers={wanted}, {loader_settings(trainer)}, prefetch_factor=4)",
        )


def cache(view: View) -> Iterator[Step]:
    """Caching in memory."""
    free = view.frame.host.memory_available_bytes
    if free is not None:
        yield Step(text=f"Keep the dataset small enough for the page cache: {size(free)} of memory available")


def look(view: View) -> Step:
    """Inspect it directly, by where the data come from: iostat covers local disks only."""
    source = sources.source(view)
    if isinstance(source, sources.NetworkMount):
        if source.file_system.startswith("nfs"):
            return Step(text="Watch the read latency of the mount", command=f"nfsiostat 1 {quote(source.name)}")
        return Step(text="Watch the Lustre client statistics", command="lctl get_param llite.*.stats")
    drive = sources.main_drive(view)
    return Step(text="Watch await and aqu-sz", command=f"iostat -x 1{f' {quote(drive.name)}' if drive else ''}")
