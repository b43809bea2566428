"""The agent of a job that runs for weeks, and of one that is out of descriptors: there, and asleep."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.process_watch import ROOT, running
from tests.real_processes import until
from tests.traced_jobs import scratch

# the agent alone, with settings of its server changed; then what stands on the lines of its standard input
CHILD = """
import importlib.util, os, resource, sys, time
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "gputop_agent", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules["gputop_agent"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["gputop_agent"])
import gputop_agent.server as server
exec(sys.argv[2])
sys.modules["gputop_agent"].start("test")
print(flush=True)
for line in sys.stdin:
    exec(line)
    print(time.process_time(), flush=True)
"""


@contextmanager
def agent(change: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process with the agent in it, and the path of its socket."""
    with scratch() as folder:
        environ = {**os.environ, "GPUTOP_RUNTIME_DIR": f"{folder}/run", "GPUTOP_AGENT_DEBUG": "1"}
        code = (sys.executable, "-c", CHILD, str(ROOT / "gputop/agent"), change)
        with running(*code, env=environ, stdin=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            (name,) = os.listdir(f"{folder}/run")
            yield child, f"{folder}/run/{name}"


def told(child: subprocess.Popen[str], code: str) -> float:
    """Have it run a line; the CPU time that it has used so far."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{code}\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def test_p21_a_job_without_descriptors_is_not_kept_busy_and_listens_again_later() -> None:
    with agent() as (child, path), socket.socket(socket.AF_UNIX) as client:
        before_s = told(child, "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))")
        client.connect(path)
        time.sleep(1.2)
        assert told(child, "pass") - before_s < 0.1
        told(child, "resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))")
        client.settimeout(10)
        assert b"gputop-agent" in client.recv(4096)


def test_the_socket_of_a_job_of_weeks_does_not_grow_old() -> None:
    with agent("server._TOUCH_S = 0.2") as (_, path):
        os.utime(path, (0, 0))
        until(lambda: time.time() - os.stat(path).st_mtime < 60 and time.time() - os.stat(path).st_atime < 60)
