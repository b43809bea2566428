"""What the doctor says of the kernel: every branch on copies of its files, and the rules of ptrace on the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputop.collect.kernel_files import Kernel
from gputop.collect.proc.proc_files import UNLOCK_DELAYS
from tests.doctor_machine import ALL, FILES, line, machine

YAMA = "proc/sys/kernel/yama/ptrace_scope"
STATUS = "proc/self/status"
CAPABLE = FILES[STATUS].replace("CapEff:\t0000000000000000", f"CapEff:\t{ALL}")


@pytest.mark.parametrize(
    ("scope", "files", "options", "status", "says", "unlock"),
    [
        ("0", {}, {}, "ok", "your processes are readable", None),
        (None, {}, {}, "ok", "your processes are readable", None),
        ("0", {}, {"uid": 0}, "ok", "root's processes are readable", None),
        ("1", {}, {}, "limited", "ptrace_scope=1", "sudo sysctl -w kernel.yama.ptrace_scope=0"),
        ("2", {}, {}, "limited", "only root can read", "sudo sysctl -w kernel.yama.ptrace_scope=0"),
        ("1", {".dockerenv": ""}, {}, "limited", "ptrace_scope=1", "docker run --cap-add SYS_PTRACE IMAGE"),
        ("1", {STATUS: CAPABLE}, {"uid": 0}, "ok", "every visible process", None),
        ("2", {STATUS: CAPABLE}, {"uid": 0}, "ok", "every visible process", None),
        (
            "3",
            {STATUS: CAPABLE},
            {"uid": 0},
            "missing",
            "no process can be read",
            "grep -rs ptrace_scope /etc/sysctl.* /usr/lib/sysctl.d",
        ),
        ("?", {}, {}, "unknown", "cannot be read", None),
    ],
)
def test_who_may_read_a_process(
    tmp_path: Path, scope: str | None, files: dict[str, str], options: Any, status: str, says: str, unlock: str | None
) -> None:
    said = line(machine(tmp_path, {YAMA: scope, **files}, **options), "ptrace")
    assert (said.status, said.unlock) == (status, unlock)
    assert says in said.what


@pytest.mark.parametrize(
    ("options", "status", "groups", "capable"),
    [
        ("rw", "ok", {1000}, False),
        ("rw,hidepid=0", "ok", {1000}, False),
        ("rw,hidepid=off", "ok", {1000}, False),
        ("rw,hidepid=1", "limited", {1000}, False),
        ("rw,hidepid=invisible", "limited", {1000}, False),
        ("rw,hidepid=2", "ok", {1000}, True),
        ("rw,gid=44,hidepid=2", "ok", {1000, 44}, False),
        ("rw,gid=44,hidepid=2", "limited", {1000}, False),
        ("rw,gid=44,hidepid=ptraceable", "limited", {1000, 44}, False),
    ],
)
def test_p07_hidepid(tmp_path: Path, options: str, status: str, groups: set[int], capable: bool) -> None:
    files = {"proc/self/mountinfo": f"22 27 0:21 / /proc rw,relatime - proc proc {options}\n"}
    if capable:
        files[STATUS] = CAPABLE
    said = line(machine(tmp_path, files, groups=frozenset(groups)), "hidepid")
    assert said.status == status
    assert said.unlock == ("sudo mount -o remount,hidepid=0 /proc" if status == "limited" else None)


@pytest.mark.parametrize(
    ("tool", "unlock"),
    [
        ("usr/sbin/grubby", "sudo grubby --update-kernel=ALL --args=psi=1"),
        ("usr/sbin/update-grub", "psi=1 /' /etc/default/grub && sudo update-grub"),
        ("usr/bin/true", None),
    ],
)
def test_p11_pressure(tmp_path: Path, tool: str, unlock: str | None) -> None:
    assert line(machine(tmp_path), "psi").status == "ok"
    (tmp_path / "proc/pressure/io").unlink()
    (tmp_path / tool).parent.mkdir(parents=True)
    (tmp_path / tool).touch()
    said = line(machine(tmp_path, {"proc/pressure/io": None}), "psi")
    assert said.status == "missing"
    assert "psi=1" in said.what
    assert (said.unlock or "").endswith(unlock or "")
    assert (said.unlock is None) == (unlock is None)


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"proc/sys/kernel/task_delayacct": "1\n"}, "ok"),
        ({"proc/sys/kernel/task_delayacct": "0\n"}, "limited"),
        # before Linux 5.14 the first process tells by what it waited for
        ({"proc/sys/kernel/task_delayacct": None, "proc/1/stat": f"1 (init) S {' '.join(['7'] * 49)}\n"}, "ok"),
        ({"proc/sys/kernel/task_delayacct": None, "proc/1/stat": f"1 (init) S {' '.join(['0'] * 49)}\n"}, "limited"),
    ],
)
def test_p09_delays(tmp_path: Path, files: dict[str, str | None], status: str) -> None:
    said = line(machine(tmp_path, files), "delays")
    assert (said.status, said.unlock) == (status, None if status == "ok" else "sudo sysctl -w kernel.task_delayacct=1")
    assert said.unlock in (None, UNLOCK_DELAYS), "another command than the details"
    assert ("IO% is estimated from the samples in state D" in said.what) == (status == "limited")
    assert "unknown" not in said.what


def test_waits_for_a_cpu(tmp_path: Path) -> None:
    assert line(machine(tmp_path / "a"), "run-delay").status == "ok"
    assert line(machine(tmp_path / "b", {"proc/self/schedstat": None}), "run-delay").status == "missing"
    assert line(machine(tmp_path / "c", {"proc/self/schedstat": "0\n"}), "run-delay").status == "missing"


def test_p09_what_processes_read(tmp_path: Path) -> None:
    own = line(machine(tmp_path / "a"), "io")
    assert (own.status, own.unlock) == ("limited", "sudo gputop")
    assert line(machine(tmp_path / "b", {STATUS: CAPABLE}), "io").status == "ok"
    assert line(machine(tmp_path / "c", {"proc/self/io": None}), "io").status == "missing"
    assert line(machine(tmp_path / "d", {"proc/7/io": "rchar: 1\n"}, pid=7), "io").what.startswith(
        "the I/O of process 7"
    )


@pytest.mark.parametrize(
    ("options", "files", "whose", "unlock"),
    [
        ({}, {}, "cannot be read by you", "sudo gputop doctor --pid 7"),
        ({"uid": 0}, {}, "cannot be read by root without CAP_SYS_PTRACE", None),
        (
            {"uid": 0},
            {".dockerenv": ""},
            "cannot be read by root without CAP_SYS_PTRACE",
            "docker run --cap-add SYS_PTRACE IMAGE",
        ),
        ({"uid": 0}, {STATUS: CAPABLE, ".dockerenv": ""}, "cannot be read even by root", None),
    ],
)
def test_root_is_not_told_to_use_sudo_for_another_users_process(
    tmp_path: Path, options: Any, files: dict[str, str], whose: str, unlock: str | None
) -> None:
    kernel = Kernel(f"{tmp_path}/proc", f"{tmp_path}/sys", read=refuse)
    said = line(machine(tmp_path, files, pid=7, kernel=kernel, **options), "io")
    assert (said.status, said.what, said.unlock) == ("unknown", f"{whose}: Permission denied", unlock)


def refuse(path: str, limit: int = 0) -> bytes:
    """The read fails, not the open: the error names no file."""
    raise PermissionError(13, "Permission denied")


def test_root_without_the_capability_is_not_told_to_use_sudo(tmp_path: Path) -> None:
    told = "of others cannot be read by root without CAP_SYS_PTRACE"
    for place, files, unlock in (
        ("host", {}, None), ("container", {".dockerenv": ""}, "docker run --cap-add SYS_PTRACE IMAGE"),
    ):  # fmt: skip
        here = machine(tmp_path / place, files, uid=0)
        said = [line(here, name) for name in ("ptrace", "io")]
        assert [(one.what.endswith(told), one.unlock) for one in said] == [(True, unlock)] * 2
