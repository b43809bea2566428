"""A machine for the doctor: its files in a folder, and the lines of one check about them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gputop.collect.kernel_files import Kernel
from gputop.doctor import DoctorContext, checks, run_checks
from gputop.doctor.check import CheckLine
from tests.kernel_trees import write_tree

ROOT = Path(__file__).parent.parent
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
FILES = {
    "proc/self/status": "Name:\tgputop\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n"
    "Cpus_allowed_list:\t0-31\n",
    "proc/self/mountinfo": "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "35 24 0:30 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n",
    "proc/self/cgroup": "0::/job\n",
    "proc/self/schedstat": "1 2 3\n",
    "proc/self/io": "rchar: 1\n",
    "proc/pressure/cpu": PRESSURE,
    "proc/pressure/memory": PRESSURE,
    "proc/pressure/io": PRESSURE,
    "proc/sys/kernel/task_delayacct": "1\n",
    "proc/sys/kernel/yama/ptrace_scope": "0\n",
    "proc/meminfo": "MemTotal:       1056423372 kB\nMemFree: 1 kB\n",
    "proc/cpuinfo": "vendor_id\t: AuthenticAMD\n",
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\n",
    "sys/devices/system/cpu/online": "0-31\n",
    "sys/fs/cgroup/job/cpu.max": "max 100000\n",
    "sys/fs/cgroup/job/memory.max": "max\n",
}
HOST = "pid:[4026531836]"
ALL = "00000000000000000000000000080000"  # CAP_SYS_PTRACE


def machine(root: Path, files: Mapping[str, str | None] | None = None, **options: Any) -> DoctorContext:
    """A healthy server with some of its files changed; None removes one."""
    changed = {**FILES, **(files or {})}
    write_tree(root, {name: text for name, text in changed.items() if text is not None})
    namespace = root / "proc/self/ns/pid"
    if not namespace.is_symlink():
        namespace.parent.mkdir(parents=True, exist_ok=True)
        namespace.symlink_to(HOST)
    (root / "tmp").mkdir(exist_ok=True)
    given = {
        "kernel": Kernel(f"{root}/proc", f"{root}/sys", "/dev/shm"),
        "root": str(root),
        "environ": {"PATH": "/nowhere", "TERM": "xterm-256color"},
        "uid": 1000,
        "groups": frozenset({1000}),
        "nvml": False,
    }
    return DoctorContext(**{**given, **options})


def ask(machine: DoctorContext, name: str) -> tuple[CheckLine, ...]:
    """What one check says."""
    (check,) = [check for check in checks() if check.name == name]
    (result,) = run_checks(machine, "box", [check]).results
    assert not result.failed, result
    return result.lines


def line(machine: DoctorContext, name: str) -> CheckLine:
    """The only line of a check."""
    (one,) = ask(machine, name)
    return one


# where the folders of modules are not put in order first: as where another module lies beside what is installed
UNORDERED = ("-c", "import sys; from gputop.cli import main; sys.exit(main())")


def told(
    *args: str,
    env: Mapping[str, str] | None = None,
    wrapper: tuple[str, ...] = (),
    start: tuple[str, ...] = ("-m", "gputop"),
) -> dict[str, dict[str, Any]]:
    """The first line of every check as the real command prints them in JSON."""
    done = subprocess.run(
        [*wrapper, sys.executable, *start, "doctor", "--json", *args],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, env=env,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    lines = json.loads(done.stdout)["lines"]
    return {line["check"]: line for line in reversed(lines)}
