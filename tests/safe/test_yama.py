"""A kernel that lets nobody look into a process of the same user, and Yama's word for it: the commands, end to end.

Not every kernel has Yama. It refuses where every kernel refuses a reader without a capability that the target has, with
the same answer to the same calls: so the target has all of them, and Yama's setting is a file at its real place. What
cannot be seen so: that 3 refuses root too, and that Yama, other than this, leaves environment and maps readable.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gputop.safe import ptrace_access
from gputop.safe.identity import in_container
from tests.process_watch import isolated, may_mount, need_namespaces, open_folder, root_only

__all__ = ["open_folder"]

_UNLOCK = ptrace_access.CAPABILITY if in_container() else ptrace_access.ALLOW
_SAID = {
    1: f"cannot be read (ptrace_scope=1): {_UNLOCK}",
    2: f"cannot be read (ptrace_scope=2): {_UNLOCK}",
    3: "cannot be read by any user until a reboot (ptrace_scope=3)",
}
_WEAKENS = "lifting it weakens isolation between processes: the administrator's decision"
_DOCTOR = {
    1: f"running jobs are unreadable: only a parent process can read them (ptrace_scope=1); {_WEAKENS}",
    2: f"running jobs are unreadable: only root can read them (ptrace_scope=2); {_WEAKENS}",
    3: "no process can be read until a reboot (ptrace_scope=3); find where it is set",
}
# a kernel with Yama, a target of another user with all capabilities, and what root and that user are told
_STAGE = """
import contextlib, ctypes, io, json
from gputop.cli import main
libc = ctypes.CDLL(None)
if subprocess.run(["mount", "-t", "tmpfs", "none", "/proc/sys/kernel"]).returncode:
    sys.exit("no mount")
os.mkdir("/proc/sys/kernel/yama")
Path("/proc/sys/kernel/yama/ptrace_scope").write_text(f"{LEVEL}\\n")
def become():
    os.setgroups([]); os.setgid(12345); os.setuid(12345)
    libc.prctl(4, 1)  # PR_SET_DUMPABLE
def train():
    libc.prctl(1, 9)  # PR_SET_PDEATHSIG: nobody outlives this
    os.write(go, b"x")
    time.sleep(60)
    os._exit(0)
def told(*words):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(list(words))
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue(), errors.getvalue()
ready, go = os.pipe()
pid = os.fork()
if pid == 0:
    libc.prctl(8, 1)  # PR_SET_KEEPCAPS
    become()
    train()
commands = [["stack", str(pid)], ["profile", str(pid), "--for", "1"], ["trace", str(pid)], ["doctor", "--json"]]
try:
    os.read(ready, 1)
    by_root = [told(*words, "--no-nvml") for words in commands]  # loads what only root may read, too
    become()
    os.environ["XDG_STATE_HOME"] = OWN
    by_owner = [told(*words, "--no-nvml") for words in commands]
    spy = subprocess.run([f"{FOLDER}/py-spy", "dump", "--pid", str(pid)], capture_output=True, text=True)
    state = Path(f"/proc/{pid}/status").read_text().partition("State:")[2].split()[0]
finally:
    os.kill(pid, 9)
print(json.dumps([pid, by_root, by_owner, spy.returncode, spy.stderr, state, os.listdir(OWN)]))
"""


@root_only
@pytest.mark.parametrize("level", _SAID)
def test_a07_where_the_kernel_lets_nobody_look(open_folder: str, level: int) -> None:
    need_namespaces("-m")
    if not may_mount():
        pytest.skip("not covered: needs the right to mount a tmpfs")
    own = Path(open_folder, "own")
    own.mkdir()
    os.chown(own, 12345, 12345)
    places = {"XDG_STATE_HOME": f"{open_folder}/root", "XDG_CONFIG_HOME": open_folder}
    places["PATH"] = f"{open_folder}:{os.environ['PATH']}"
    code = f"LEVEL, FOLDER, OWN = {level}, {open_folder!r}, {str(own)!r}\n{_STAGE}"
    told = json.loads(isolated(code, "unshare", "-m", env={**os.environ, **places}))
    pid, by_root, by_owner, spy, spy_said, state, left = told
    (stack, profile, trace, doctor) = by_owner
    assert stack == profile == [1, "", f"gputop: process {pid} {_SAID[level]}\n"]
    assert (trace[0], trace[1], trace[2].count("\n")) == (1, "", 1), trace
    (line,) = [line for line in json.loads(doctor[1])["lines"] if line["check"] == "ptrace"]
    assert line["what"] == _DOCTOR[level]
    assert (spy, "ermission" in spy_said) == (1, True), spy_said
    assert (state, left) == ("S", [])  # it sleeps on, and nothing was written
    if level < 3:
        assert [code for code, _, _ in by_root[:2]] == [0, 0], by_root
        assert "train" in by_root[0][1]
