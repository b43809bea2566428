"""Where a process runs and with which rights: program, folder, parents, scheduler, namespaces."""

from __future__ import annotations

import os

from gputop.collect.files import slurp, why
from gputop.collect.processes.readings import Values, line
from gputop.model import Identity, Missing, Overview, Relative
from gputop.safe import attach
from gputop.safe.identity import ours, parse_stat, read_stat
from gputop.safe.text import decode

FILLS = ("overview",)
MOST_PARENTS = 32
_NAMESPACES = ("mnt", "pid", "net", "user")
_POLICIES = ("other", "fifo", "round robin", "batch", "iso", "idle", "deadline", "ext")  # include/uapi/linux/sched.h
_SECCOMP = ("off", "strict", "filter")


class Situation:
    """Reads the overview of one process."""

    def __init__(self, root: str, identity: Identity) -> None:
        self._root, self._folder, self._pid = root, f"{root}/{identity.pid}", identity.pid
        self._missing: list[Missing] = []

    def read(self) -> Values:
        """The overview; a thing in it that may not be seen is None and has its reason. OSError: not even its stat."""
        self._missing = []
        raw = slurp(f"{self._folder}/stat")
        stat, status = parse_stat(raw), slurp(f"{self._folder}/status", 16384)
        tracer = line(status, b"\nTracerPid:")
        overview = Overview(
            exe=self._link("exe", "exe"),
            folder=self._link("cwd", "folder"),
            parents=self._parents(stat.parent_pid if stat else None),
            policy=_policy(raw),
            io_priority=_io_priority(self._pid) if self._root == "/proc" else None,
            oom_score=self._number("oom_score"),
            oom_adjust=self._number("oom_score_adj"),
            tracer_pid=int(tracer) if tracer.isdigit() and tracer != b"0" else None,
            own_namespaces=self._namespaces(),
            capabilities=_capabilities(status),
            seccomp=_seccomp(status),
        )
        return {"overview": overview, "missing": tuple(self._missing)}

    def _link(self, name: str, metric: str) -> str | None:
        try:
            return decode(os.fsencode(os.readlink(f"{self._folder}/{name}")))
        except OSError as error:
            self._note(metric, error)
            return None

    def _note(self, metric: str, error: OSError) -> None:
        if why(error) == "denied":
            self._missing.append(Missing(metric=metric, reason="denied", unlock=attach.unlock()))

    def _number(self, name: str) -> int | None:
        try:
            return int(slurp(f"{self._folder}/{name}", 64))
        except (OSError, ValueError):
            return None

    def _parents(self, pid: int | None) -> tuple[Relative, ...]:
        """From the nearest up; it ends where a parent cannot be seen."""
        parents: list[Relative] = []
        while pid and len(parents) < MOST_PARENTS:
            stat = read_stat(pid, self._root)
            if stat is None or stat.started_ticks is None:
                break
            parents.append(Relative(identity=Identity(pid, stat.started_ticks), name=stat.comm))
            pid = stat.parent_pid
        return tuple(parents)

    def _namespaces(self) -> tuple[str, ...] | None:
        try:
            return tuple(name for name in _NAMESPACES if not ours(self._pid, name, self._root))
        except OSError as error:
            self._note("own_namespaces", error)
            return None


def _policy(raw: bytes) -> str | None:
    """Field 41 of stat."""
    fields = raw[raw.rfind(b")") + 1 :].split()
    number = fields[38] if len(fields) > 38 else b""
    return _POLICIES[int(number)] if number.isdigit() and int(number) < len(_POLICIES) else None


def _io_priority(pid: int) -> str | None:
    """It stands in no file: psutil asks the kernel for it."""
    import psutil  # late: it takes as long as all that the first frame needs of /proc

    try:
        found = psutil.Process(pid).ionice()
    except (psutil.Error, OSError):
        return None
    if found.ioclass == psutil.IOPRIO_CLASS_NONE:
        return "by its nice value"
    if found.ioclass == psutil.IOPRIO_CLASS_IDLE:
        return "idle: when nobody else wants the disk"
    name = "real time" if found.ioclass == psutil.IOPRIO_CLASS_RT else "best effort"
    return f"{name} {found.value} of 0-7"


def _capabilities(status: bytes) -> str | None:
    """How its effective rights compare with all that there can be."""
    effective, most = line(status, b"\nCapEff:"), line(status, b"\nCapBnd:")
    try:
        held, bound = int(effective, 16), int(most, 16)
    except ValueError:
        return None
    return "none" if not held else "all" if held & bound == bound else "some"


def _seccomp(status: bytes) -> str | None:
    word = line(status, b"\nSeccomp:")
    return _SECCOMP[int(word)] if word.isdigit() and int(word) < len(_SECCOMP) else None
