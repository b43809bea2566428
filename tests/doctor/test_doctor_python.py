"""The Python in use as its files describe it: version, PyTorch, BLAS, threads; and the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gputop import numpy_blas
from gputop.doctor.python import in_use
from gputop.safe.terminal import problem
from tests.diagnose.test_rules_cpu import blas as openblas
from tests.doctor_machine import FILES, line, machine
from tests.rule_cases import found

SITE = "env/lib/python3.12/site-packages"
WHEEL = f"{SITE}/numpy.libs/libscipy_openblas64_-6bb.so"
RECORD = "env/conda-meta/libblas-3.9.0-20_linux64"
CONFIG = f"{SITE}/numpy/__config__.py"
INTEL = {"proc/cpuinfo": "vendor_id\t: GenuineIntel\n"}
AMD = {"proc/cpuinfo": "vendor_id\t: AuthenticAMD\n"}


def env(root: Path, files: dict[str, str | None] | None = None, **environ: str) -> Any:
    """A machine with a virtual environment that is active."""
    own = {"env/bin/python": "", "env/pyvenv.cfg": "home = /usr/bin\nversion = 3.12.3\n", f"{SITE}/x": ""}
    return machine(root, {**own, **(files or {})}, environ={"PATH": "/x", "VIRTUAL_ENV": f"{root}/env", **environ})


@pytest.mark.parametrize("key", ["version", "version_info"])
def test_a_virtual_environment(tmp_path: Path, key: str) -> None:
    said = line(env(tmp_path, {"env/pyvenv.cfg": f"{key} = 3.12.3.final.0\n"}), "python")
    assert said.what == f"Python 3.12.3: {tmp_path}/env/bin/python ($VIRTUAL_ENV)"


def test_conda_the_path_links_and_shims(tmp_path: Path) -> None:
    files = {"conda/bin/python": "", "conda/lib/python3.11/site-packages/x": ""}
    box = machine(tmp_path / "a", files, environ={"PATH": "/x", "CONDA_PREFIX": f"{tmp_path}/a/conda"})
    assert line(box, "python").what.startswith("Python 3.11: ")
    box = machine(tmp_path / "b", files, environ={"PATH": f"{tmp_path}/b/conda/bin"})
    (tmp_path / "b/conda/bin/python").chmod(0o755)
    assert line(box, "python").what.endswith("(the first on PATH)")
    (tmp_path / "b/bin").mkdir()
    (tmp_path / "b/bin/python3").symlink_to(tmp_path / "b/conda/bin/python")
    found = in_use(machine(tmp_path / "b", environ={"PATH": f"{tmp_path}/b/bin"}))
    assert found is not None
    assert found.packages == (tmp_path / "b/conda/lib/python3.11/site-packages",)
    shim = {"pyenv/shims/python": "#!/bin/sh\n", "pyenv/version": "3.13.1\n", "pyenv/versions/3.13.1/bin/python": ""}
    box = machine(tmp_path / "c", shim, environ={"PATH": f"{tmp_path}/c/pyenv/shims", "PYENV_VERSION": "3.13.1"})
    (tmp_path / "c/pyenv/shims/python").chmod(0o755)
    assert "versions/3.13.1/bin/python" in line(box, "python").what
    assert line(machine(tmp_path / "d"), "python").status == "unknown"


def test_packages_of_the_system_and_of_the_user_count_where_python_takes_them(tmp_path: Path) -> None:
    torch = {"usr/lib/python3/dist-packages/torch/version.py": "__version__ = '2.1.0'\n", "usr/bin/x": ""}
    shared = f"home = {tmp_path}/usr/bin\nversion = 3.12.3\ninclude-system-site-packages = true\n"
    assert "2.1.0" in line(env(tmp_path, {**torch, "env/pyvenv.cfg": shared}), "torch").what
    assert line(env(tmp_path, {"env/pyvenv.cfg": "version = 3.12.3\n"}), "torch").status == "unknown"
    files = {"py/bin/python": "", "py/lib/python3.12/site-packages/x": ""}
    files["home/.local/lib/python3.12/site-packages/torch-2.2.0+cu121.dist-info/METADATA"] = ""
    box = machine(tmp_path, files, environ={"PATH": f"{tmp_path}/py/bin", "HOME": f"{tmp_path}/home"})
    (tmp_path / "py/bin/python").chmod(0o755)
    assert "2.2.0+cu121" in line(box, "torch").what


@pytest.mark.parametrize(
    ("files", "status", "says", "unlock"),
    [
        ({WHEEL: "", **AMD}, "ok", "OpenBLAS, the right choice here: MKL is for Intel CPUs", None),
        ({WHEEL: "", **INTEL}, "limited", "only conda has NumPy with MKL", numpy_blas.WITHOUT_CONDA),
        (
            {WHEEL: "", f"{RECORD}_openblas.json": "", **INTEL},
            "limited",
            "OpenBLAS on an Intel CPU",
            numpy_blas.AFTER_PIP,
        ),
        ({f"{RECORD}_openblas.json": "", **INTEL}, "limited", "OpenBLAS on an Intel CPU", numpy_blas.IN_CONDA_FORGE),
        ({f"{RECORD}_openblas.json": "", **AMD}, "ok", "OpenBLAS", None),
        ({f"{RECORD}_mkl.json": "", **INTEL}, "ok", "MKL", None),
        ({"env/conda-meta/blas-1.0-mkl.json": "", **INTEL}, "ok", "MKL", None),
        ({"env/conda-meta/blas-1.0-openblas.json": "", **INTEL}, "limited", "OpenBLAS", numpy_blas.IN_DEFAULTS),
        ({CONFIG: '"blas": {"name": "mkl-sdl"}', **INTEL}, "ok", "MKL", None),
        ({CONFIG: '"blas": {\n "name": "scipy-openblas"}', **INTEL}, "limited", "OpenBLAS", numpy_blas.WITHOUT_CONDA),
        ({CONFIG: '"blas": {"name": "blas"}', **INTEL}, "ok", "blas", None),
        (INTEL, "unknown", "no NumPy", None),
    ],
)
def test_r18_blas(tmp_path: Path, files: dict[str, str], status: str, says: str, unlock: str | None) -> None:
    said = line(env(tmp_path, files), "blas")
    assert said.status == status
    assert says in said.what
    assert said.unlock == unlock


def test_the_doctor_advises_what_the_rule_does() -> None:
    """A variable to set comes before software that is replaced."""
    told = found(openblas(), "starved-cpu-saturated")
    assert told is not None
    commands = [step.command for step in told.steps]
    ours = [numpy_blas.UNTIL_THEN, numpy_blas.IN_CONDA_FORGE, numpy_blas.AFTER_PIP, numpy_blas.IN_DEFAULTS]
    assert [command for command in commands if command in ours] == ours
    assert [step.destroys for step in told.steps if step.command == numpy_blas.AFTER_PIP] == [True]


@pytest.mark.parametrize(
    ("environ", "status", "says"),
    [
        ({}, "ok", "one thread per CPU (32 CPUs)"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, "limited", "4 x 32 threads on 32 CPUs"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "OMP_NUM_THREADS": "8"}, "ok", "OMP_NUM_THREADS=8"),
        ({"OMP_NUM_THREADS": "64"}, "limited", "OMP_NUM_THREADS=64, but only 32 CPUs"),
        ({"OMP_NUM_THREADS": "4,2"}, "limited", "OMP_NUM_THREADS=4,2"),
        ({"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "128"}, "limited", "MKL_NUM_THREADS=128"),
    ],
)
def test_r16_threads(tmp_path: Path, environ: dict[str, str], status: str, says: str) -> None:
    said = line(env(tmp_path, **environ), "threads")
    assert said.status == status
    assert says in said.what
    jobs = 4 if "CUDA_VISIBLE_DEVICES" in environ else 1
    assert said.unlock == (f"export OMP_NUM_THREADS={32 // jobs}" if status == "limited" else None)


def test_an_environment_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    files = {"proc/7/status": FILES["proc/self/status"], "proc/7/cgroup": FILES["proc/self/cgroup"]}
    said = line(machine(tmp_path, files, pid=7), "threads")
    assert (said.what, said.unlock) == ("cannot be read by you: /proc/7/environ", "sudo gputop doctor --pid 7")


@pytest.mark.parametrize(("quota", "cores", "suggested"), [("50000", "0.5", 1), ("800000", "8", 8)])
def test_threads_and_cpus_agree_where_a_control_group_gives_fewer_than_pytorch_sees(
    tmp_path: Path, quota: str, cores: str, suggested: int
) -> None:
    box = env(tmp_path, {"sys/fs/cgroup/job/cpu.max": f"{quota} 100000\n"})
    threads, cpus = line(box, "threads"), line(box, "cpus")
    assert threads.status == cpus.status == "limited"
    assert threads.what.endswith(f"one thread per CPU (32 CPUs), but the cgroup quota is {cores} CPUs")
    assert threads.unlock == cpus.unlock == f"export OMP_NUM_THREADS={suggested}"


@pytest.mark.parametrize(
    ("python", "environ", "scope", "status", "says"),
    [
        ("3.12.3", {}, "0", "limited", "only jobs started as follows"),
        ("3.14.0", {}, "0", "ok", "yes, through sys.remote_exec of Python 3.14.0"),
        ("3.14.0", {}, "1", "limited", "the kernel does not (see ptrace)"),
        ("3.14.0", {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}, "0", "missing", "disabled"),
        ("", {}, "0", "unknown", "is unknown"),
    ],
)
def test_the_way_of_the_profiler(
    tmp_path: Path, python: str, environ: dict[str, str], scope: str, status: str, says: str
) -> None:
    files = {"env/pyvenv.cfg": f"version = {python}\n", f"{SITE}/x": None, "proc/sys/kernel/yama/ptrace_scope": scope}
    said = line(env(tmp_path, files, **environ), "torch-trace")
    assert said.status == status
    assert says in said.what
    assert (said.value["route"] == "remote_exec") == (status == "ok")


@pytest.mark.parametrize(
    ("environ", "status", "says"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, "ok", "16 million"),
        ({"TERM": "xterm-256color"}, "ok", "256; if"),
        ({"TERM": "linux"}, "limited", "16 (TERM=linux)"),
        ({"TERM": "dumb"}, "missing", "TERM=dumb"),
        ({}, "limited", "16 (TERM is not set)"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "limited", "NO_COLOR"),
    ],
)
def test_colours(tmp_path: Path, environ: dict[str, str], status: str, says: str) -> None:
    said = line(machine(tmp_path, environ=environ), "colours")
    assert said.status == status
    assert says in said.what
    assert (said.unlock is None) == (says == "16 million")


@pytest.mark.parametrize("term", [None, "dumb", "xterm", "linux"])
def test_t10_the_doctor_and_the_screen_agree_on_a_terminal(
    tmp_path: Path, term: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.isatty", lambda _: True)
    monkeypatch.delenv("TERM", raising=False)
    if term:
        monkeypatch.setenv("TERM", term)
    said = line(machine(tmp_path, environ={} if term is None else {"TERM": term}), "colours")
    why = problem()
    assert (said.status == "missing") == (why is not None)
    assert why in (None, said.what)


def test_size_and_characters(tmp_path: Path) -> None:
    assert line(machine(tmp_path), "size").status == "unknown"
    assert line(machine(tmp_path, terminal=(80, 24)), "size").status == "ok"
    assert line(machine(tmp_path, terminal=(59, 24)), "size").status == "limited"
    assert line(machine(tmp_path, encoding="UTF-8"), "characters").status == "ok"
    assert line(machine(tmp_path, encoding="iso8859-1"), "characters").status == "limited"


@pytest.mark.parametrize(
    ("answer", "status"),
    [("echo on", "ok"), ("echo external", "limited"), ("exit 1", "unknown"), ("exec sleep 9", "unknown")],
)
def test_the_clipboard_behind_tmux(tmp_path: Path, answer: str, status: str) -> None:
    tmux = tmp_path / "bin/tmux"
    environ = {"PATH": f"{tmux.parent}:/usr/bin:/bin", "TMUX": "/tmp/x"}
    box = machine(tmp_path, {"bin/tmux": f"#!/bin/sh\n{answer}\n"}, environ=environ)
    tmux.chmod(0o755)
    said = line(box, "clipboard")
    assert said.status == status
    assert (said.unlock or "").startswith("tmux") == (status != "ok")


def test_the_clipboard_elsewhere(tmp_path: Path) -> None:
    assert line(machine(tmp_path, environ={"STY": "1.x"}), "clipboard").status == "missing"
    assert line(machine(tmp_path), "clipboard").status == "unknown"
