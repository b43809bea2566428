"""A fake NVIDIA driver: a real libnvidia-ml.so.1 in C that answers what a test writes in its state file.

    fake = Fake(tmp_path, gpus=2)
    fake.set("gpu.0.util", square(0, 100, period_s=0.5, duty=0.4))
    fake.add_process(gpu=0, pid=os.getpid(), vram_bytes=3 << 30, sm=57)
    subprocess.run([sys.executable, "-m", "gputop", "--json"], env=fake.env())
    fake.hang("*", gpu=0)              # while it runs
    fake.counts()["nvmlDeviceGetUtilizationRates"]

Every key stands in keys.h; a key that is not there is an error here.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.fakenvml.account import Account
from tests.fakenvml.build import OLD_DRIVER, NoCompiler, library, symbols
from tests.fakenvml.profiles import Profile

__all__ = ["OLD_DRIVER", "Fake", "NoCompiler", "Process", "keys", "library", "square", "symbols"]

Value = str | bytes | int | float | None

WORKER = 4_100_000  # pid of the process that a profile has at work on its first GPU

_SPENT = "spent_us"  # in the file of counts: no function
_SLOT = struct.Struct("64sQQ64Q")
_FAULT = re.compile(r"(fail|hang|delay_us|burn_us|crash|grow)\.(nvml\w*\*?|\*)")
_UNITS = {
    2: 88,
    3: 45,
    4: 12,
    5: 55,
    6: 0,
    7: 54,
    8: 0,
    9: 0,
    10: 42,
    11: 0,
    12: 18,
    13: 4,
    20: 1430,
    21: 1430,
    60: 0,
    61: 0,
}  # GPM of a good bf16 job, at work
_FAMILY = re.compile(
    r"gpm\.\d+|field\.\d+(\.\d+)?|field_us\.\d+|samples\.\d+|topology\.\d+|p2p\.\d+|mig\.[\d*]+\.gpm\.\d+"
)


class Process(NamedTuple):
    """A process the driver lists on a GPU; vram_bytes None is "not available", sm and the like None is idle (%)."""

    gpu: int
    pid: int
    vram_bytes: int | None = 1 << 30
    kind: str = "compute"
    sm: int | None = None
    mem: int | None = None
    enc: int | None = None
    dec: int | None = None
    gi: int | None = None
    ci: int | None = None

    def line(self) -> str:
        """This process as a line of the state file."""
        amount = "na" if self.vram_bytes is None else self.vram_bytes
        rest = (f" {name}={value}" for name, value in zip(self._fields[4:], self[4:], strict=True) if value is not None)
        return f"gpu.{self.gpu}.process {self.pid} {amount} {self.kind}{''.join(rest)}"


def square(low: float, high: float, *, period_s: float, duty: float) -> str:
    """A value that is high for the first `duty` of each period of the wall clock, else low."""
    return f"square {low} {high} {period_s} {duty}"


class Fake:
    """One fake driver: its library, its state file, and the calls programs have made of it."""

    def __init__(self, folder: Path, gpus: int = 8, *, without: Collection[str] = (), **state: Value) -> None:
        self._library = library(tuple(sorted(without)))
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._values: dict[str, Value] = {}
        self._xids: list[str] = []
        self.processes: list[Process] = []
        self.update({"gpus": gpus, **state})

    def env(self, **extra: str) -> dict[str, str]:
        """The environment for a program that shall see this driver."""
        path = os.pathsep.join(filter(None, (str(self._library), os.environ.get("LD_LIBRARY_PATH"))))
        ours = {"FAKE_NVML_STATE": str(self._state), "FAKE_NVML_COUNTERS": str(self._counters)}
        return {**os.environ, "LD_LIBRARY_PATH": path, **ours, **extra}

    def set(self, key: str, value: Value) -> None:
        """Sets one key; None is "unsupported", bytes may be anything."""
        self.update({key: value})

    def update(self, values: Mapping[str, Value]) -> None:
        """Sets keys together: a program sees all of them or none."""
        for key in values:
            _check(key)
        self._values |= values
        self.write()

    def clear(self, *patterns: str) -> None:
        """Back to the default for every key that was set and matches; a "*" in a key matches itself too."""
        self._values = {
            key: value for key, value in self._values.items() if not any(fnmatch.fnmatchcase(key, p) for p in patterns)
        }
        self.write()

    def fail(self, call: str, code: int, *, gpu: int | None = None, after: int = 0, times: int = 0) -> None:
        """Makes calls (a name, or its start and "*") return an NVML error."""
        self.fault("fail", call, code, gpu=gpu, after=after, times=times)

    def hang(self, call: str, seconds: float | None = None, *, gpu: int | None = None) -> None:
        """Makes calls not return, for ever without seconds, until `release`."""
        self.fault("hang", call, "forever" if seconds is None else seconds, gpu=gpu)

    def fault(
        self, kind: str, call: str, value: float | str, *, gpu: int | None = None, after: int = 0, times: int = 0
    ) -> None:
        """Sets a rule of any kind of keys.h: fail, hang, delay_us, burn_us, crash, grow."""
        self.set(_rule(kind, call, gpu), f"{value} after={after} times={times}")

    def release(self, kind: str, call: str, *, gpu: int | None = None) -> None:
        """Takes a rule back."""
        self._values.pop(_rule(kind, call, gpu))
        self.write()

    def add_process(self, gpu: int, pid: int, **rest: int | str | None) -> None:
        """Puts one process on a GPU; many at once go into `processes`, then `write`."""
        self.processes.append(Process(gpu, pid, **rest))
        self.write()

    def remove_process(self, pid: int) -> None:
        """Takes a process off every GPU."""
        self.processes = [process for process in self.processes if process.pid != pid]
        self.write()

    def play(self, profile: Profile, *, idle: bool = False) -> None:
        """Answers as a class of devices does, at work or at rest, from now on; what was set before is void."""
        self._values = {"gpus": profile.gpus, **profile.state, **(profile.rest if idle else {})}
        for key in self._values:
            _check(key)
        gi, ci = profile.instance or (None, None)
        at_work = range(0 if idle or not profile.lists else profile.gpus)
        self.processes = [
            Process(gpu, WORKER + gpu, vram_bytes=2 << 30, sm=96, mem=50, gi=gi, ci=ci) for gpu in at_work
        ]
        self.write()

    def lend(self, gpu: int, *, idle_w: float = 75.0, busy_w: float = 620.0) -> Path:
        """Lets programs say what they do on a GPU, in an account whose path is given to them; nothing else moves it."""
        path = self.folder / f"gpu-{gpu}.account"
        Account(path)
        work, effort = (lambda low, high, kind=kind: f"{kind} {low} {high} {path}" for kind in ("work", "effort"))
        moved = {"util": work(0, 100), "mem_util": effort(0, 41), "memory_used": f"held 0 {path}", "tenants": str(path)}
        moved |= {f"power{kind}_mw": effort(1000 * idle_w, 1000 * busy_w) for kind in ("", "_average", "_instant")}
        moved |= {f"gpm.{unit}": effort(0, top) for unit, top in _UNITS.items()} | {"gpm.1": work(0, 100)}
        moved |= {f"pcie_{way}_bytes_per_s": effort(0, 1.5e9) for way in ("tx", "rx")}
        moved |= {f"nvlink.*.{way}_bytes_per_s": 0 for way in ("tx", "rx")}
        self.update({f"gpu.{gpu}.{name}": value for name, value in moved.items()})
        return path

    def xid(self, gpu: int, code: int) -> None:
        """Raises an Xid on a GPU."""
        self._xids.append(f"gpu.{gpu}.xid {code} {len(self._xids) + 1}")
        self.write()

    def write(self) -> None:
        """Puts the state file in place, whole."""
        lines = [f"{key} {_written(value)}" for key, value in self._values.items()]
        lines += [process.line() for process in self.processes] + self._xids
        aside = self.folder / "state.new"
        aside.write_text("\n".join((*lines, "")))
        aside.replace(self._state)

    def counts(self, gpu: int | None = None) -> Counter[str]:
        """Calls so far by function, of one GPU or of all; "hanging" is how many are held by a rule now."""
        content = self._counters.read_bytes() if self._counters.exists() else b""
        slots = (_SLOT.unpack_from(content, at) for at in range(0, len(content), _SLOT.size))
        found = {s[0].rstrip(b"\0").decode(): s[2] if gpu is None else s[3 + gpu] for s in slots if s[1] == 2}
        return Counter({name: count for name, count in found.items() if name != _SPENT})

    def spent_s(self) -> float:
        """What all calls took so far, by rules that make them slow."""
        content = self._counters.read_bytes() if self._counters.exists() else b""
        slots = (_SLOT.unpack_from(content, at) for at in range(0, len(content), _SLOT.size))
        return next((s[2] / 1e6 for s in slots if s[1] == 2 and s[0].rstrip(b"\0").decode() == _SPENT), 0.0)

    def wait_for(self, call: str, count: int = 1, *, gpu: int | None = None, seconds: float = 10.0) -> None:
        """Returns when a function was called that often; TimeoutError when it is not, in time."""
        deadline = time.monotonic() + seconds
        while self.counts(gpu)[call] < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{call}: {self.counts(gpu)[call]} calls of {count} in {seconds} s")
            time.sleep(0.005)

    @property
    def _state(self) -> Path:
        return self.folder / "nvml.state"

    @property
    def _counters(self) -> Path:
        return self.folder / "nvml.counts"


@cache
def keys() -> frozenset[str]:
    """Every key of the tables in keys.h, a GPU's as gpu.*.KEY."""
    header = (Path(__file__).parent / "keys.h").read_text()
    shared, own = header.split("GPU_KEYS[]")
    names = re.compile(r'^    \{"([^"]+)",', re.MULTILINE)
    return frozenset((*names.findall(shared), *(f"gpu.*.{name}" for name in names.findall(own))))


def _check(key: str) -> None:
    """A key the driver would ignore is a test that does not test."""
    scope, name = re.fullmatch(r"(gpu\.(?:\d+|\*)\.)?(.+)", key, re.DOTALL).groups()
    if _FAULT.fullmatch(name) or (scope and _FAMILY.fullmatch(name)):
        return
    plain = re.sub(r"^(nvlink|mig)\.\d+\.", r"\1.*.", name)
    plain = f"gpu.*.{plain}" if scope else name
    if plain not in keys():
        near = difflib.get_close_matches(plain, keys(), 3)
        raise KeyError(f"{key} is no key of the fake driver; near it: {', '.join(near) or 'none'}")


def _rule(kind: str, call: str, gpu: int | None) -> str:
    return f"{kind}.{call}" if gpu is None else f"gpu.{gpu}.{kind}.{call}"


def _written(value: Value) -> str:
    if value is None:
        return "unsupported"
    if isinstance(value, (int, float)):
        return str(int(value) if isinstance(value, bool) else value)
    content = value.encode() if isinstance(value, str) else value
    shown = (chr(c) if 0x20 <= c < 0x7F and c != 0x5C else f"\\x{c:02x}" for c in content)
    return "".join(shown)
