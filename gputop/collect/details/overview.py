"""Where a process runs and with which rights: program, parents, environment, limits, namespaces."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from math import inf

from gputop.collect.kernel_files import slurp, slurp_all, why
from gputop.collect.proc.proc_files import Values, line
from gputop.model import Identity, Limit, LimitUnit, Missing, Overview, Process, Relative, Variable
from gputop.safe import ptrace_access
from gputop.safe.identity import ours, parse_stat, read_stat
from gputop.safe.text import LIMIT, clean, decode, redact, redact_variable
from gputop.source import OTHERS_ENVIRONMENT

ENVIRONMENT_FILLS, OTHERS = ("environment",), "others"
MOST_BYTES, MOST_VARIABLES, LONGEST = 1 << 20, 2000, 1 << 16


class EnvironmentReader:
    """Reads the variables of one process. The screen sets which masked ones are to be shown."""

    def __init__(self, root: str, identity: Identity, uid: int | None = None) -> None:
        self._folder = f"{root}/{identity.pid}"
        self._uid = os.geteuid() if uid is None else uid
        self.revealed: Collection[str] = frozenset()
        self.others = False

    def read(self) -> Values:
        """The variables by name, and whether they are another user's; OSError when they may not be read."""
        others, revealed = not self._own(), self.revealed
        if others and not (self._uid == 0 and self.others):
            denied = Missing(metric="environment", reason="denied", unlock=ptrace_access.unlock(uid=self._uid))
            return {"missing": (OTHERS_ENVIRONMENT if self._uid == 0 else denied,)}
        stat = parse_stat(slurp(f"{self._folder}/stat"))
        if stat is None or stat.kernel_thread or stat.state in "ZX":  # its file is empty, which says nothing
            return {"missing": (Missing(metric="environment", reason="absent"),)}
        raw = slurp_all(f"{self._folder}/environ", MOST_BYTES)
        return {"environment": variables(raw, revealed), OTHERS: others}

    def _own(self) -> bool:
        """Whether it runs with our uid alone, by its status: its folder's owner is root where it may not be dumped."""
        uids = line(slurp(f"{self._folder}/status", 16384), b"\nUid:").split()[:3]
        return bool(uids) and {int(uid) for uid in uids} == {self._uid}


def variables(raw: bytes, revealed: Collection[str]) -> tuple[Variable, ...]:
    """The variables of an environ file, by name; an entry without a `=` is one without a value."""
    entries = [entry.partition(b"=") for entry in raw.split(b"\x00")[:MOST_VARIABLES] if entry]
    return tuple(sorted((_variable(name, value, revealed) for name, _, value in entries), key=lambda one: one.name))


def _variable(raw_name: bytes, raw_value: bytes, revealed: Collection[str]) -> Variable:
    plain_name, value = decode(raw_name, LONGEST), decode(raw_value, LONGEST)
    # before they are cut: the half of a token does not look like one; a name may be anything, a command line say
    name, masked = clean(redact(plain_name), 256), redact_variable(plain_name, value)
    shown = name in revealed
    secret = masked != value or name != plain_name
    return Variable(name=name, value=clean(value if shown else masked, LIMIT), secret=secret, revealed=shown)


LIMITS_FILLS = ("limits",)
_LINE = re.compile(rb"Max (.+?)\s{2,}(unlimited|-?\d+)\s+(unlimited|-?\d+)\s*(\S*)")
_UNITS: dict[bytes, LimitUnit] = {
    b"seconds": "seconds", b"bytes": "bytes", b"processes": "processes", b"files": "files", b"locks": "locks",
    b"signals": "signals", b"us": "microseconds",
}  # fmt: skip
_STATUS = {"address space": b"\nVmSize:", "locked memory": b"\nVmLck:", "data size": b"\nVmData:"}


class LimitsReader:
    """Reads the limits of one process; `processes` are all that are known, for how many its user has."""

    def __init__(self, root: str, identity: Identity, processes: Callable[[], Iterable[Process]]) -> None:
        self._folder, self._identity, self._processes = f"{root}/{identity.pid}", identity, processes

    def read(self) -> Values:
        """The limits in the order of the kernel; OSError when they may not be read."""
        raw = slurp(f"{self._folder}/limits", 8192)
        used = self._used()
        return {"limits": tuple(limit for row in raw.splitlines() if (limit := _limit(row, used)) is not None)}

    def _used(self) -> dict[str, float | None]:
        status = slurp(f"{self._folder}/status", 16384)
        used: dict[str, float | None] = {name: _kilobytes(line(status, field)) for name, field in _STATUS.items()}
        queued = line(status, b"\nSigQ:").partition(b"/")[0]
        used["pending signals"] = int(queued) if queued.isdigit() else None
        used["cpu time"] = self._cpu_s()
        used["processes"] = self._tasks(line(status, b"\nUid:").split()[:1])
        try:
            used["open files"] = len(os.listdir(f"{self._folder}/fd"))
        except OSError:
            used["open files"] = None
        return used

    def _cpu_s(self) -> float | None:
        stat = parse_stat(slurp(f"{self._folder}/stat"))
        if stat is None or stat.user_ticks is None or stat.system_ticks is None:
            return None
        return (stat.user_ticks + stat.system_ticks) / os.sysconf("SC_CLK_TCK")

    def _tasks(self, uid: list[bytes]) -> float | None:
        """Tasks of its user: the kernel counts threads, whatever the limit is called."""
        if not uid or not uid[0].isdigit():
            return None
        mine = [process for process in self._processes() if process.uid == int(uid[0])]
        return sum(process.threads or 0 for process in mine) if mine else None


def _limit(row: bytes, used: dict[str, float | None]) -> Limit | None:
    found = _LINE.match(row)
    if found is None:
        return None
    name, unit = decode(found[1]), _UNITS.get(found[4], "priority")
    return Limit(name=name, unit=unit, soft=_number(found[2]), hard=_number(found[3]), used=used.get(name))


def _number(raw: bytes) -> float:
    return inf if raw == b"unlimited" else int(raw)


def _kilobytes(raw: bytes) -> int | None:
    words = raw.split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else None


FILLS = ("overview",)
MOST_PARENTS = 32
_NAMESPACES = ("mnt", "pid", "net", "user")
_POLICIES = ("other", "fifo", "round robin", "batch", "iso", "idle", "deadline", "ext")  # include/uapi/linux/sched.h
_SECCOMP = ("off", "strict", "filter")


class OverviewReader:
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
            self._missing.append(Missing(metric=metric, reason="denied", unlock=ptrace_access.unlock()))

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
        return "from its nice value"
    if found.ioclass == psutil.IOPRIO_CLASS_IDLE:
        return "idle: only when the disk is otherwise unused"
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
