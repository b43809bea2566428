"""Which build of PyTorch a process has loaded: from its version file, which is read and never run."""

from __future__ import annotations

import os
from threading import Event

from gputop.collect.proc.builds import Builds
from gputop.collect.proc.proc_files import Values
from tests.fakeproc import FakeProc, named, proc, until

__all__ = ["proc"]


def build_of(proc: FakeProc, file: str | None) -> tuple[str | None, str | None]:
    """What is told of the PyTorch that a process has mapped, with this as its version file; None is a pipe."""
    proc.add(42)
    proc.more(42)
    (proc.proc / "42/root").unlink()
    proc.write("42/maps", "7f0-7f1 r-xp 0 8:1 9 /env a/site-packages/torch/lib/libtorch_cpu.so\n")
    path = proc.write("42/root/env a/site-packages/torch/version.py", file or "")
    if file is None:
        path.unlink()
        os.mkfifo(path)
    process = named(proc, 42, lambda process: process.libraries and (file is None or process.torch_version), 42)
    return process.torch_version, process.torch_cuda


def test_the_build_of_pytorch_is_read_and_never_run(proc: FakeProc) -> None:
    file = "raise SystemExit\n__version__ = '2.7.0+cu126'\ncuda: Optional[str] = '12.6'\nhip: Optional[str] = None\n"
    assert build_of(proc, file) == ("2.7.0+cu126", "12.6")


def test_a_build_for_cpus_has_no_cuda(proc: FakeProc) -> None:
    assert build_of(proc, "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n") == ("2.13.0+cpu", None)


def test_a_pipe_in_place_of_a_version_holds_nothing_up(proc: FakeProc) -> None:
    assert build_of(proc, None) == (None, None)
    proc.add(43)
    proc.more(43)
    proc.write("43/cmdline", b"python\0")
    assert named(proc, 43, lambda process: process.command, 43).command == ("python",)


def test_p37_a_package_on_a_dead_server_costs_its_own_version() -> None:
    answers, told = Event(), list[Values]()

    def read(path: str) -> bytes:
        if path.startswith("/dead"):
            answers.wait(60)
        return b"__version__ = '2.7.0'\n"

    builds = Builds(read)
    builds.start()
    builds.read("/dead/torch", told.append)
    builds.read("/env/torch", told.append)
    until(lambda: builds._active.path is not None)
    builds.watch(10.0)
    assert builds.hangs(11.0) == []
    builds.watch(12.0)
    until(lambda: len(told) == 1)
    assert builds.hangs(13.0) == [("/dead/torch/version.py", 3.0)]
    answers.set()
    until(lambda: len(told) == 2)
    assert builds.hangs(14.0) == []
    builds.stop()
