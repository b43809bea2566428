"""The doctor as a whole: every check is declared and answers, one that hangs or breaks costs its own lines only."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gputop import docs
from gputop.cli import parser
from gputop.collect.kernel_files import Kernel
from gputop.doctor import GROUPS, as_json, checks, render, run_checks
from gputop.doctor.check import Check, CheckLine
from gputop.doctor.machine import DoctorContext
from gputop.doctor.report import WIDTH
from tests.doctor_machine import ROOT, machine
from tests.kernel_trees import write_tree

POOR = {  # much is wrong
    "proc/sys/kernel/yama/ptrace_scope": "1\n",
    "proc/sys/kernel/task_delayacct": "0\n",
    "proc/pressure/io": None,
    "proc/self/mountinfo": "22 27 0:21 / /proc rw - proc proc rw,hidepid=2\n"
    "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "proc/cpuinfo": "vendor_id\t: GenuineIntel\n",
    **{f"sys/bus/pci/devices/0000:{bus}:00.0/vendor": "0x10de\n" for bus in ("1b", "43")},
    **{f"sys/bus/pci/devices/0000:{bus}:00.0/class": "0x030200\n" for bus in ("1b", "43")},
    "sys/fs/cgroup/job/cpu.max": "800000 100000\n",
    "sys/fs/cgroup/job/memory.max": "68719476736\n",
    "usr/sbin/grubby": "",
    "env/bin/python": "",
    "env/pyvenv.cfg": "home = /usr/bin\nversion = 3.12.3\n",
    "env/lib/python3.12/site-packages/torch/version.py": "__version__ = '2.7.1+cu126'\ncuda = '12.6'\n",
    "env/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_-6bb31eeb.so": "",
}


def poor(root: Path, **environ: str) -> DoctorContext:
    given = {"PATH": "/nowhere", "TERM": "xterm", "VIRTUAL_ENV": f"{root}/env", "CUDA_VISIBLE_DEVICES": "0,1"}
    return machine(root, POOR, environ={**given, **environ}, encoding="ascii", terminal=(58, 20))


def steady(of: str, root: Path) -> str:
    """A report without what differs from machine to machine."""
    for path, name in ((root, "ROOT"), (Path(sys.executable), "PYTHON")):
        of = of.replace(str(path), name)
    return re.sub(r"gputop-\d+|\d+\.\d+G(?= free)", "N", of)


def in_fixture(check: Check) -> bool:
    """Whether its answer depends on nothing but the files of a fixture."""
    return check.name not in ("py-spy", "pynvml", "shm", "runtime", "python")


@pytest.mark.parametrize("ascii", [False, True])
def test_the_text_of_a_machine_with_many_limits(
    tmp_path: Path, golden: Callable[[str, str], None], ascii: bool
) -> None:
    report = run_checks(poor(tmp_path), "gpu-07", [check for check in checks() if in_fixture(check)])
    text = render(report, ascii=ascii)
    assert text.isascii()
    golden("doctor.txt", steady(text, tmp_path))


def test_no_line_is_wider_than_80_but_a_command_that_must_not_be_broken(tmp_path: Path) -> None:
    for row in render(run_checks(poor(tmp_path), "gpu-07")).splitlines():
        assert len(row) <= WIDTH or row.lstrip().startswith(("$", "/")) or str(tmp_path) in row


def test_every_check_answers_and_every_line_says_what_it_must(tmp_path: Path) -> None:
    for subject in (machine(tmp_path / "a"), poor(tmp_path / "b"), machine(tmp_path / "c", dict.fromkeys(POOR))):
        report = run_checks(subject, "box")
        assert not report.failed
        assert [result.check for result in report.results] == list(checks())
        for result in report.results:
            assert result.lines, result.check
            assert all(line.what and line.what.isprintable() for line in result.lines)


def test_without_proc_and_sys_everything_is_unknown_and_nothing_breaks(tmp_path: Path) -> None:
    bare = run_checks(replace(machine(tmp_path), kernel=Kernel("/nowhere", "/nowhere", "/nowhere")), "box")
    assert not bare.failed
    by_name = {result.check.name: result.lines[0] for result in bare.results}
    assert by_name["cpus"].status == by_name["loader"].status == "unknown"
    assert by_name["psi"].status == "missing"


def test_names_are_unique_and_every_group_has_a_check() -> None:
    names = [check.name for check in checks()]
    assert len(names) == len(set(names)) > 20
    assert [*dict.fromkeys(check.group for check in checks())] == list(GROUPS)
    assert all(check.question.endswith("?") for check in checks())
    assert all(f"`{name}`" in docs.read("doctor") for name in names)


def test_a_check_that_hangs_is_unknown_and_the_others_answer(tmp_path: Path) -> None:
    ever = threading.Event()

    def hang(machine: DoctorContext) -> Iterator[CheckLine]:
        ever.wait()
        yield CheckLine("ok", "never")

    def good(machine: DoctorContext) -> Iterator[CheckLine]:
        yield CheckLine("ok", "good")

    asked = [Check("a", "?", "kernel", hang), Check("b", "?", "kernel", good)]
    first, second = run_checks(machine(tmp_path), "box", asked, patience_s=2.0).results
    ever.set()
    assert (first.lines[0].status, first.lines[0].what) == ("unknown", "no response within 2 s")
    assert second.lines == (CheckLine("ok", "good"),)


@pytest.mark.parametrize(
    ("error", "says", "unlock", "failed"),
    [
        (
            PermissionError(13, "no", "/proc/7/maps"),
            "cannot be read by you: /proc/7/maps",
            "sudo gputop doctor",
            False,
        ),
        (OSError(5, "I/O", "/proc/x"), "cannot be read: /proc/x: Input/output error", None, False),
        (ValueError("odd \x1b[2J"), "this check failed: ValueError: odd ␛[2J", None, True),
    ],
)
def test_a_check_that_fails_costs_its_own_line(
    tmp_path: Path, error: Exception, says: str, unlock: str | None, failed: bool
) -> None:
    def fail(machine: DoctorContext) -> Iterator[CheckLine]:
        yield CheckLine("ok", "half of an answer")
        raise error

    report = run_checks(machine(tmp_path), "box", [Check("a", "?", "kernel", fail)])
    (result,) = report.results
    assert result.lines == (CheckLine("unknown", says, unlock),)
    assert report.failed == failed


def test_hostile_text_is_harmless_in_text_and_json(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\u202e"
    files = {"env/bin/python": "", "env/pyvenv.cfg": f"version = 3.12.1{evil}\n"}
    files["env/lib/python3.12/site-packages/torch/version.py"] = f"__version__ = '2.7{evil}'\n"
    environ = {"PATH": "/x", "VIRTUAL_ENV": f"{tmp_path}/env", "OMP_NUM_THREADS": f"4{evil}", "TERM": evil}
    report = run_checks(machine(tmp_path, files, environ=environ), evil)
    assert all(row.isprintable() for row in render(report).splitlines())
    written = json.loads(json.dumps(as_json(report)))
    assert "\x1b" not in str(written).replace("\\x1b", "\x1b")
    assert "owned" in str(written)


def test_every_command_of_ours_that_is_advised_is_one(tmp_path: Path) -> None:
    source = "".join(path.read_text() for path in (ROOT / "gputop/doctor").glob("*.py"))
    advised = set(re.findall(r"\"((?:sudo |env -u PYTHONPATH )?gputop [a-z][\w -]*)\"", source))
    assert len(advised) >= 3
    for command in advised:
        parser().parse_args(shlex.split(command)[shlex.split(command).index("gputop") + 1 :])


def test_the_command_prints_text_or_json_and_fails_for_a_process_that_is_not() -> None:
    run = [sys.executable, "-m", "gputop", "doctor", "--no-nvml"]
    text = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    assert all(title in text.stdout for title in GROUPS.values())
    done = subprocess.run([*run, "--json"], capture_output=True, text=True, timeout=60, check=True)
    written = json.loads(done.stdout)
    assert list(written) == ["version", "gputop", "host", "pid", "in_container", "lines"]
    assert {key for line in written["lines"] for key in line} == {
        "check", "group", "question", "status", "what", "unlock", "value",
    }  # fmt: skip
    gone = subprocess.Popen(["true"])
    gone.wait()
    failed = subprocess.run([*run, "--pid", str(gone.pid)], capture_output=True, text=True, timeout=60, check=False)
    assert (failed.returncode, failed.stderr) == (1, f"gputop: no process with PID {gone.pid} is visible to you\n")


def test_it_changes_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, {"home/x": ""})
    environ = {**os.environ, "HOME": f"{tmp_path}/home", "XDG_RUNTIME_DIR": f"{tmp_path}/home"}
    subprocess.run([sys.executable, "-m", "gputop", "doctor"], env=environ, capture_output=True, timeout=60, check=True)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["x"]
