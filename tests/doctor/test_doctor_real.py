"""The doctor about real processes: ours, another user's, one that is not dumpable, behind hidepid, with PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputop.safe import ptrace_access
from gputop.safe.identity import in_container
from tests.doctor_machine import told
from tests.process_watch import isolated, need_namespaces, python, running
from tests.real_processes import until

OTHER = 12345
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="not covered: needs root to act as another user")
# as after a login: a process that only changed its uid may not read its own files
AS_OTHER = f"import ctypes; os.setgroups([]); os.setgid({OTHER}); os.setuid({OTHER}); ctypes.CDLL(None).prctl(4, 1)\n"
TELL = """
import importlib.metadata
importlib.metadata.version("psutil")  # while the standard library can be read: it may be root's own
import gputop.doctor.report, pynvml
from gputop.doctor import DoctorContext, run_checks
def tell(**options):
    report = run_checks(DoctorContext(nvml=False, **options), "box")
    assert not report.failed
    return {result.check.name: result.lines[0] for result in report.results}
"""


def test_about_a_process_with_pytorch() -> None:
    code = "import numpy, torch; torch.ones(3); print('ready', flush=True); import time; time.sleep(60)"
    environ = {**os.environ, "OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": ""}
    with running(sys.executable, "-c", code, env=environ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        said = told("--no-nvml", "--pid", str(child.pid))
        true = subprocess.run(
            [sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True
        )
    assert said["ptrace"]["what"] == f"process {child.pid} is readable"
    assert said["torch"]["value"] == {"version": true.stdout.strip(), "cuda": None}
    assert said["python"]["value"]["version"] == ".".join(map(str, sys.version_info[:2]))
    assert said["blas"]["value"]["blas"] in ("openblas", "mkl")
    assert said["threads"]["value"]["set"] == {"OMP_NUM_THREADS": "3"}
    assert said["shm"]["value"]["total_bytes"] == os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize
    assert said["torch-trace"]["value"]["route"] == ("remote_exec" if sys.version_info >= (3, 14) else None)


def test_a_process_that_has_not_loaded_numpy_is_said_to_have_not() -> None:
    with python("import _ctypes; print('ready', flush=True); import time; time.sleep(60)") as child:
        said = told("--no-nvml", "--pid", str(child.pid))["blas"]
    assert (said["status"], said["what"]) == ("unknown", f"process {child.pid} has not loaded NumPy")


def test_about_a_process_that_is_no_python() -> None:
    with running("sleep", "60") as child:
        said = told("--no-nvml", "--pid", str(child.pid))
    assert said["python"]["what"] == f"process {child.pid} is not Python"
    assert said["torch"]["status"] == said["blas"]["status"] == said["torch-trace"]["status"] == "unknown"


@needs_root
def test_p09_as_another_user() -> None:
    with python("print('ready', flush=True); import time; time.sleep(60)") as roots:
        code = f"""{TELL}
{AS_OTHER}
said = tell(pid={roots.pid})
line = said["ptrace"]
assert line.status == "missing" and line.what == "process {roots.pid} belongs to another user (uid 0)", line
assert line.unlock.startswith("sudo ") and line.unlock.endswith("py-spy dump --pid {roots.pid}"), line
for name in ("io", "python", "torch", "blas", "threads", "shm"):
    assert said[name].status == "unknown", (name, said[name])
    assert said[name].unlock == "sudo gputop doctor --pid {roots.pid}", said[name]
own = tell()
assert own["ptrace"].what.startswith("your processes are readable") or "ptrace_scope" in own["ptrace"].what, own
assert own["io"].status == "limited" and own["io"].unlock == "sudo gputop" , own["io"]
assert own["cpus"].status != "unknown" and own["loader"].status == "advice", own
"""
        isolated(code)


@needs_root
def test_root_without_the_capability_is_told_which_one_not_to_use_sudo(tmp_path: Path) -> None:
    """As in a container that was given nothing: root, and yet another user's process is closed."""
    without = ("setpriv", "--bounding-set", "-sys_ptrace,-sys_admin", "--inh-caps", "-all")
    with running("setpriv", "--reuid", str(OTHER), "--regid", str(OTHER), "--clear-groups", "sleep", "60") as child:
        until(lambda: os.stat(f"/proc/{child.pid}").st_uid == OTHER)
        said = told("--no-nvml", "--pid", str(child.pid), wrapper=without)
    unlock = ptrace_access.CAPABILITY if in_container() else None
    for name in ("ptrace", "io", "python", "torch", "blas", "shm", "torch-trace"):
        assert (name, said[name]["status"] != "ok", said[name]["unlock"]) == (name, True, unlock)
        assert "Errno" not in said[name]["what"], "an exception's text"
    for name, line in told("--no-nvml", wrapper=without).items():
        assert name not in ("io", "ptrace") or ("sudo" not in line["what"] and line["unlock"] == unlock), line


@needs_root
def test_p09_a_process_that_is_not_dumpable() -> None:
    code = f"""{TELL}
{AS_OTHER}
child = os.fork()
if child == 0:
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
    os.write(1, b"ready\\n")
    time.sleep(60)
    os._exit(0)
deadline = time.monotonic() + 20
while os.stat(f"/proc/{{child}}/mem").st_uid != 0 and time.monotonic() < deadline:
    time.sleep(0.01)
try:
    line = tell(pid=child)["ptrace"]
finally:
    os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
assert line.status == "missing" and "not dumpable" in line.what, line
"""
    isolated(code)


@needs_root
def test_p07_behind_a_real_hidepid() -> None:
    need_namespaces("-m")
    code = f"""{TELL}
if subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"]).returncode:
    sys.exit("no proc mount")
assert tell()["hidepid"].status == "ok"  # root sees all
{AS_OTHER}
line = tell()["hidepid"]
assert (line.status, line.unlock) == ("limited", "sudo mount -o remount,hidepid=0 /proc"), line
"""
    isolated(code, "unshare", "-m")


@needs_root
def test_p12_a_real_limit_of_memory() -> None:
    group = Path("/sys/fs/cgroup/memory/gputop-doctor-test")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(1 << 30))
    except OSError as error:
        pytest.skip(f"not covered: no control group of version 1 to make ({error.strerror})")
    try:
        enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
        said = told("--no-nvml", wrapper=enter)["memory"]
    finally:
        group.rmdir()
    assert (said["status"], said["value"]["limit_bytes"]) == ("limited", 1 << 30)
