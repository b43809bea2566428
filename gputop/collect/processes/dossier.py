"""What is asked once of a process: command line, environment, folder, libraries, cgroup. Any of it may never answer."""

from __future__ import annotations

import os
from collections.abc import Callable

from gputop.collect.files import slurp_all, why
from gputop.collect.processes import facts
from gputop.collect.processes.cgroup import Place, place
from gputop.collect.processes.readings import Values
from gputop.collect.shm import shared_memory
from gputop.model import Identity, Missing, Reason
from gputop.safe import attach
from gputop.safe.identity import Stat, read_stat

PSS_FILLS, SHM_FILLS = ("pss_bytes",), ("shm_total_bytes", "shm_used_bytes")
WEIGHT_FILLS = (*PSS_FILLS, *SHM_FILLS)
CGROUP, CMDLINE, ENVIRON, MAPS, ROLLUP = 1 << 16, 1 << 15, 1 << 20, 1 << 23, 1 << 14

# the environment has the last word on the Slurm job: it is read with what the cgroup says
_FILES = ("cgroup", "environ", "cmdline", "cwd", "maps", "build", "smaps_rollup", "root")
_MEASURED = ("smaps_rollup", "root")
_FROM_ENVIRON = ("rank", "local_rank", "world_size", "rendezvous", "omp_threads", "mkl_threads", "visible_gpus")


class Dossier:
    """The answers of one process so far: fields of a Process, and its place among the cgroups."""

    def __init__(self, identity: Identity, root: str = "/proc") -> None:
        self.identity, self.root = identity, root
        self.values: Values = {}  # swapped whole: another thread reads it
        self.place: Place | None = None
        self.package: str | None = None  # folder of the PyTorch it has mapped, from our root
        self.file = "stat"  # that was asked last
        self._names: tuple[str, ...] = ()  # fields of it
        self._answers: dict[str, Values] = {}
        self._missing: dict[str, tuple[Missing, ...]] = {}

    def ask(self, deep: bool, tell: Callable[[], None]) -> None:
        """Read it all, what cannot hang first; `tell` after each answer. OSError when the process has ended."""
        stat = self._alive()
        self._keep("cgroup", (), lambda: self._belongs(self._raw("cgroup", CGROUP)), tell)
        if stat.kernel_thread or stat.state in "ZX":  # nothing to ask, and of a zombie it would be a mistake
            return
        self._keep("cmdline", ("command",), lambda: {"command": facts.command(self._raw("cmdline", CMDLINE))}, tell)
        if deep:
            self._answers["cwd"] = {"folder": self._folder()}
            self._keep("environ", _FROM_ENVIRON, self._environment, tell)
            self._keep("maps", ("libraries",), lambda: self._mapped(self._raw("maps", MAPS)), tell)
        self._alive()

    def weigh(self, tell: Callable[[], None]) -> None:
        """Read its PSS: slow, as the kernel walks all its pages."""
        self._alive()
        self._keep("smaps_rollup", PSS_FILLS, lambda: {"pss_bytes": facts.pss(self._raw("smaps_rollup", ROLLUP))}, tell)

    def ask_shm(self, tell: Callable[[], None]) -> None:
        """Read how full its /dev/shm is, which is another one in a container."""
        self._alive()
        self._keep("root", SHM_FILLS, self._shm, tell, "absent")

    def learn(self, build: Values, tell: Callable[[], None]) -> None:
        """Take in what somebody else found out: which build of PyTorch it has mapped."""
        self._alive()
        self._answers["build"] = build
        self._sum()
        tell()

    def lose(self) -> None:
        """Say that the file which is being read does not answer, and the command line does not come, if it has not.

        What was measured before is no longer known; what it was started with holds.
        """
        if self.file in _MEASURED:
            self._answers.pop(self.file, None)
        if self.file not in self._answers:
            self._missing[self.file] = tuple(Missing(metric=name, reason="lost") for name in self._names)
        if "cmdline" not in self._answers:
            self._missing["cmdline"] = (Missing(metric="command", reason="lost"),)
        self._sum()

    def _alive(self) -> Stat:
        """The stat record, as long as it is still the same process; else what was read belongs to another."""
        stat = read_stat(self.identity.pid, self.root)
        if stat is None or stat.started_ticks != self.identity.started_ticks:
            self.values, self.place = {}, None
            raise ProcessLookupError
        return stat

    def _keep(
        self,
        what: str,
        names: tuple[str, ...],
        read: Callable[[], Values],
        tell: Callable[[], None],
        gone: Reason = "unsupported",  # where the file is not there; nobody reads it if the process is not
    ) -> None:
        self.file, self._names = what, names
        try:
            self._answers[what] = read()
            self._missing.pop(what, None)
        except OSError as error:
            reason = why(error)
            known: Reason = gone if reason == "gone" else reason
            unlock = attach.unlock() if reason == "denied" else None
            self._answers.pop(what, None)
            self._missing[what] = tuple(Missing(metric=name, reason=known, unlock=unlock) for name in names)
        self._sum()
        tell()

    def _raw(self, file: str, size: int) -> bytes:
        return slurp_all(f"{self.root}/{self.identity.pid}/{file}", size)

    def _shm(self) -> Values:
        found = shared_memory(f"{self.root}/{self.identity.pid}/root/dev/shm")
        return {"shm_total_bytes": found.total, "shm_used_bytes": found.used}

    def _sum(self) -> None:
        values: Values = {}
        for file in _FILES:
            values.update(self._answers.get(file, {}))
        values["missing"] = tuple(one for many in self._missing.values() for one in many)
        self.values = values

    def _belongs(self, raw: bytes) -> Values:
        self.place = place(raw)
        found = {"cgroup": self.place.path, "container": self.place.container, "slurm_job": self.place.slurm_job}
        return {name: value for name, value in found.items() if value is not None}

    def _environment(self) -> Values:
        raw = self._raw("environ", ENVIRON)
        return facts.environment(raw, self.place.slurm_job if self.place else None)

    def _mapped(self, raw: bytes) -> Values:
        package = facts.torch_package(raw)
        self.package = f"{self.root}/{self.identity.pid}/root{package}" if package else None
        return {"libraries": facts.libraries(raw)}

    def _folder(self) -> str | None:
        try:
            return facts.folder(os.readlink(f"{self.root}/{self.identity.pid}/cwd"))
        except OSError:
            return None
