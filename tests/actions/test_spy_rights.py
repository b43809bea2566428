"""With whose rights root looks into a process by py-spy: those of its user where they are enough."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gputop.actions.pyspy import runner
from gputop.safe import ptrace_access
from tests.actions.test_stacks import stacks, untouched
from tests.process_watch import need_namespaces, open_folder, root_only
from tests.real_processes import program, row

__all__ = ["open_folder"]


@root_only
def test_a20_root_reads_with_the_rights_of_the_targets_user(open_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    python = "/usr/bin/python3"  # one that any user may run
    if not Path(python).exists():
        pytest.skip(f"not covered: needs {python}")
    becomes = f"os.setgroups([]); os.setgid(12345); os.setuid(12345); os.execv({python!r}, sys.argv[1:])"
    sleeps = "print(flush=True)\nimport time\ndef train(): time.sleep(60)\ntrain()"
    with program(becomes, "python", "-S", "-c", sleeps) as (pid, _):
        if not ptrace_access.dumpable(pid):
            pytest.skip("not covered: the user of the target may not read it here")
        who = runner.start("/bin/sh", pid, ["-c", "id -u; id -G"], seconds=10, to_file=False)
        assert isinstance(who, runner.Child)
        who.wait()
        assert who.output() == b"12345\n12345\n"
        who.close()
        monkeypatch.setattr(sys, "executable", f"{open_folder}/python")  # py-spy is looked for beside it
        (shown,) = stacks(row(pid)).processes
        assert shown.barred is None, shown.barred
        assert shown.threads[0].calls[0].name == "train"
        assert untouched(pid)


# as a container engine that runs as root makes its users others than those of the host
_REMAPPED = """
import ctypes
apart, told = os.pipe()
main = os.getpid()
helper = os.fork()
if not helper:
    os.read(apart, 1)
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{main}/{name}", "w") as file: file.write("0 100000 65536")
    os._exit(0)
assert not ctypes.CDLL(None).unshare(0x10000000)  # CLONE_NEWUSER
os.write(told, b"x")
os.waitpid(helper, 0)
os.setgroups([]); os.setgid(1000); os.setuid(1000)
os.execv(sys.argv[1], sys.argv[1:])
"""


@root_only
def test_a07_root_reads_who_is_in_a_user_namespace_of_its_own(
    open_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip(f"not covered: needs {python}")
    need_namespaces("-U")
    sleeps = "print(flush=True)\nimport time\ndef train(): time.sleep(60)\ntrain()"
    with program(_REMAPPED, python, "-S", "-c", sleeps) as (pid, _):
        assert os.stat(f"/proc/{pid}").st_uid == 101000
        monkeypatch.setattr(sys, "executable", f"{open_folder}/python")
        (shown,) = stacks(row(pid)).processes
        assert shown.barred is None, shown.barred
        assert shown.threads[0].calls[0].name == "train"


@root_only
def test_a07_root_reads_who_holds_capabilities() -> None:
    keeps = """
import ctypes
libc = ctypes.CDLL(None)
libc.prctl(8, 1)  # PR_SET_KEEPCAPS
os.setgroups([]); os.setgid(12345); os.setuid(12345)
libc.prctl(4, 1)  # PR_SET_DUMPABLE
print(flush=True)
time.sleep(60)
"""
    with program(keeps) as (pid, _):
        who = runner.start("/bin/sh", pid, ["-c", "id -u"], seconds=10, to_file=False)
        assert isinstance(who, runner.Child)
        who.wait()
        assert who.output() == b"0\n"
        who.close()
