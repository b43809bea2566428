"""Which processes train, and which one started them: from GPUs, workers, ranks and libraries. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from gputop.collect.jobs.ancestry import DEEPEST, FRAMEWORKS, LOADER
from gputop.collect.jobs.launchers import is_notebook, is_python, is_service, is_spawned, launcher
from gputop.model import Identity, Process

BUSY_PERCENT = 20.0  # of one core, now or on the whole: a process with less does not train
_SERVERS = ("nvidia-cuda-mps", "nv-hostengine", "nvidia-persiste", "dcgm")


_pid = attrgetter("pid")


class JobOrigin(NamedTuple):
    """Where a trainer comes from: the topmost process of its job, what launched it, and its Slurm step."""

    root: Process
    launcher: str | None
    step: Process | None


def candidates(processes: Iterable[Process], stepping: Collection[Identity] = ()) -> list[Process]:
    """The few that may have to do with training."""
    steps = {pid for pid, _ in stepping}
    return [
        process
        for process in processes
        if process.gpus
        or process.rank is not None
        or process.libraries
        or process.name[: len(LOADER)] == LOADER
        or (process.thread_names and process.talks)
        or process.pid in steps
    ]


def computes(process: Process) -> bool:
    """Whether it computes on a GPU, other than as a service for all."""
    shares = any(share.kind != "graphics" for share in process.gpus)
    return shares and not process.name.startswith(_SERVERS)


class ProcessTree:
    """Processes by pid, with their trees; those that /proc does not show are in none."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self.places = {process.pid: place for place, process in enumerate(processes) if process.unseen is None}
        self._processes = processes
        self._children: defaultdict[int, list[Process]] = defaultdict(list)
        for process in processes:
            self._children[process.parent_pid].append(process)

    def above(self, process: Process) -> Iterator[Process]:
        """Ancestors, the nearest first."""
        for _ in range(DEEPEST):
            place = self.places.get(process.parent_pid)
            if place is None:
                return
            process = self._processes[place]
            yield process

    def children(self, process: Process) -> list[Process]:
        """Children, the lowest pid first."""
        found = self._children.get(process.pid)
        return [] if found is None else sorted((child for child in found if child.unseen is None), key=_pid)

    def trainers(self, hinted: Iterable[Process], stepping: Collection[Identity] = ()) -> dict[int, Process]:
        """Those that train: they compute on a GPU, have loaders, are a rank, or run a framework and are busy.

        And those that make optimizer steps, as their meters say, with whatever they do so.
        """
        found: dict[int, Process] = {}
        perhaps: list[Process] = []
        certain: set[int] = set()  # they have loaders, or make optimizer steps
        for process in hinted:
            if process.unseen is not None:
                continue
            if process.name.startswith(LOADER):
                parent = next((above for above in self.above(process) if not is_service(above)), None)
                ours = parent is not None and (is_python(parent) or _runs_on(parent, process))
                if parent is not None and ours and launcher(parent) is None:
                    found[parent.pid] = parent
                    certain.add(parent.pid)
            elif computes(process) or process.identity in stepping:
                found[process.pid] = process
                if process.identity in stepping:
                    certain.add(process.pid)
            elif process.talks or (is_python(process) and launcher(process) is None and not is_service(process)):
                perhaps.append(process)
        for process in filter(at_work, perhaps):
            original = process if process.talks else self._original(process)
            if original.pid not in found and (process.talks or self._on_its_own(original, found)):
                found[original.pid] = original
        for pid in (self._launchers(found) | self._above_launchers(found)) - certain:
            del found[pid]
        return found

    def origin(self, trainer: Process, trainers: dict[int, Process]) -> JobOrigin:
        """Climb from a trainer to the outermost process that launched it."""
        root, label, step, below = trainer, None, None, trainer
        for process in self.above(trainer):
            kind = launcher(process)
            if kind == "slurm":
                step = process
            elif is_notebook(process) and not _runs_on(process, below):
                break
            elif kind is not None or process.pid in trainers or (below is root and starts(process, below)):
                root, label = process, kind or label
            below = process
        return JobOrigin(root, label, step)

    def _launchers(self, found: dict[int, Process]) -> set[int]:
        """Those that only started ranks. Threads for NCCL or gloo identify a rank: no fork inherits them.

        A launcher may well have used much CPU for its imports, and have a CUDA context that it never computes in.
        """
        started: set[int] = set()
        for rank in found.values():
            below = rank
            for above in self.above(rank) if rank.talks else ():
                if above.thread_names and not (above.talks or _runs_backward(above)) and starts(above, below):
                    started.add(above.pid)
                below = above
        return started & found.keys()

    def _above_launchers(self, found: dict[int, Process]) -> set[int]:
        """Those that are only busy, with a framework, and started the launcher of others: a sweep, a test runner.

        A process that starts Ray may train itself, with what its workers play.
        """
        started: set[int] = set()
        for rank in found.values():
            launched = False
            for above in self.above(rank):
                if launched and above.rank is None and not (above.talks or computes(above)):
                    started.add(above.pid)
                launched = launched or launcher(above) not in (None, "ray")
        return started & found.keys()

    def _original(self, process: Process) -> Process:
        """A process that only runs a function for its parent stands for that parent."""
        for parent in self.above(process):
            if launcher(parent) is not None or not is_python(parent) or not _runs_on(parent, process):
                break
            process = parent
        return process

    def _on_its_own(self, process: Process, found: dict[int, Process]) -> bool:
        """Whether no ancestor does the training for it; children inherit the environment and the libraries."""
        for parent in self.above(process):
            if parent.pid in found or (is_python(parent) and launcher(parent) is None and at_work(parent)):
                return parent.rank != process.rank and process.local_rank is not None
        return True


def at_work(process: Process) -> bool:
    """Whether a process without a GPU trains: one of several ranks, or a framework that is or has been busy.

    Its environment identifies a rank, or its threads for NCCL or gloo: a rank that waits uses hardly any CPU.
    A name alone does not prove it: `train.py` may as well sort files.
    """
    if process.talks or (process.rank is not None and (process.world_size or 0) > 1):
        return True
    lifetime = 100 * (process.cpu_time_s or 0.0) / process.age_s if process.age_s else 0.0
    at_it = max(process.cpu_percent or 0.0, lifetime) >= BUSY_PERCENT
    return at_it and not FRAMEWORKS.isdisjoint(process.libraries)


def _runs_on(parent: Process, child: Process) -> bool:
    """Whether a child runs a function of its parent: forked with the same command line, or spawned for it."""
    return is_spawned(child) or is_service(child) or (bool(child.command) and child.command == parent.command)


def starts(parent: Process, child: Process) -> bool:
    """Whether a program that is no known launcher starts ranks; it may be frozen, which hides that it is Python."""
    if _runs_on(parent, child):
        return True
    return is_python(parent) and child.rank is not None and parent.rank != child.rank and (child.world_size or 0) > 1


def _runs_backward(process: Process) -> bool:
    """Whether autograd has threads in it, as it has for each GPU after the first backward pass."""
    return any(name.startswith("pt_autograd") for name, _ in process.thread_names)
