"""Less of a machine for one command: a CPU quota, a slow disk, a small /dev/shm; each as what stands before it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

Confine = Callable[[Path], AbstractContextManager[tuple[str, ...]]]  # given the folder of the data

LINGER_S = 20.0
_NUMBERS = itertools.count()
_ROOT = Path("/sys/fs/cgroup")
_ENTER = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')


class NotCovered(RuntimeError):
    """This machine cannot do it: the reason, in one line."""


@contextlib.contextmanager
def _cgroup(controller: str, old: dict[str, str], new: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """A cgroup of either version with these settings."""
    unified = (_ROOT / "cgroup.controllers").exists()
    parent, settings = (_ROOT, new) if unified else (_ROOT / controller, old)
    group = parent / f"workload-{os.getpid()}-{next(_NUMBERS)}"
    try:
        group.mkdir()
    except OSError as why:
        raise NotCovered(f"no cgroup can be made in {parent}: {why.strerror}") from None
    try:
        for name, value in settings.items():
            (group / name).write_text(value)
        yield (*_ENTER, str(group))
    except OSError as why:
        raise NotCovered(f"{why.filename}: {why.strerror}") from None
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """What was killed is in it until the disk has answered."""
    deadline = time.monotonic() + LINGER_S
    while True:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def quota(cpus: float) -> Confine:
    """So much CPU time a second, and that before whoever else works on this machine."""
    share = int(cpus * 100_000)
    old = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(share), "cpu.shares": "200000"}
    new = {"cpu.max": f"{share} 100000", "cpu.weight": "10000"}
    return lambda _folder: _cgroup("cpu", old, new)


def slow_disk(*, mb_s: float = 0, reads_s: int = 0) -> Confine:
    """So many bytes or requests a second of the disk the data lies on."""

    def confine(folder: Path) -> AbstractContextManager[tuple[str, ...]]:
        disk = _disk(os.stat(folder).st_dev)
        count, of = (int(mb_s * 2**20), "bps") if mb_s else (reads_s, "iops")
        return _cgroup(
            "blkio", {f"blkio.throttle.read_{of}_device": f"{disk} {count}"}, {"io.max": f"{disk} r{of}={count}"}
        )

    return confine


def _disk(device: int) -> str:
    """The whole disk of a partition; its numbers."""
    numbers = f"{os.major(device)}:{os.minor(device)}"
    here = Path(f"/sys/dev/block/{numbers}")
    if not here.exists():
        raise NotCovered(f"the data does not lie on a disk ({numbers})")
    whole = here.resolve().parent / "dev"
    return whole.read_text().strip() if (here / "partition").exists() else numbers


def small_shm(mb: int) -> Confine:
    """A /dev/shm of its own, as a container has."""

    @contextlib.contextmanager
    def confine(_folder: Path) -> Iterator[tuple[str, ...]]:
        space = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
        tried = subprocess.run([*space, "true"], capture_output=True, text=True, check=False)
        if tried.returncode:
            raise NotCovered(tried.stderr.strip())
        yield (*space, "sh", "-c", f'mount -t tmpfs -o size={mb}m tmpfs /dev/shm && exec "$0" "$@"')

    return confine


@contextlib.contextmanager
def nothing(_folder: Path) -> Iterator[tuple[str, ...]]:
    """The machine as it is."""
    yield ()
